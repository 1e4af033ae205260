// A sender hands a whole message to its socket, whose buffer holds any; a receiver reads as it comes and counts bytes.
#include "ns3_star.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

// Not the modules' own headers, which are not C++20.
#include <ns3/boolean.h>
#include <ns3/config.h>
#include <ns3/data-rate.h>
#include <ns3/double.h>
#include <ns3/inet-socket-address.h>
#include <ns3/internet-stack-helper.h>
#include <ns3/ipv4-address-helper.h>
#include <ns3/ipv4-static-routing-helper.h>
#include <ns3/point-to-point-helper.h>
#include <ns3/queue-disc.h>
#include <ns3/simulator.h>
#include <ns3/socket.h>
#include <ns3/string.h>
#include <ns3/tcp-socket-factory.h>
#include <ns3/tcp-socket-state.h>
#include <ns3/traffic-control-helper.h>
#include <ns3/uinteger.h>

namespace rehearse::packets {
namespace {

using ns3::Ptr;

constexpr std::uint16_t kDoor = 5000;
constexpr double kBegin = 0.01;  // s: connections stand

void set_defaults(const Transport& transport) {
  static const bool once = [] {
    ns3::Time::SetResolution(ns3::Time::PS);
    return true;
  }();
  (void)once;
  using ns3::Config::SetDefault;
  SetDefault("ns3::TcpL4Protocol::SocketType",
             ns3::StringValue(transport.port_segments == 0 ? "ns3::TcpDctcp" : "ns3::TcpNewReno"));
  SetDefault("ns3::TcpSocket::SegmentSize", ns3::UintegerValue(kPayload));
  SetDefault("ns3::TcpSocket::InitialCwnd", ns3::UintegerValue(kFirstWindow));
  SetDefault("ns3::TcpSocket::DelAckCount", ns3::UintegerValue(1));
  SetDefault("ns3::TcpSocket::SndBufSize", ns3::UintegerValue(1 << 30));
  SetDefault("ns3::TcpSocket::RcvBufSize", ns3::UintegerValue(1 << 26));
  SetDefault("ns3::TcpSocketBase::MinRto", ns3::TimeValue(ns3::Seconds(kRetransmitAfter)));
}

class Simulation {
 public:
  Simulation(const Star& star, const Transport& transport) {
    set_defaults(transport);
    hosts_.Create(static_cast<std::uint32_t>(star.hosts));
    switch_.Create(1);
    ns3::InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.Install(hosts_);
    stack.Install(switch_);
    for (int h = 0; h < star.hosts; ++h) join(h, star, transport);
  }
  ~Simulation() { ns3::Simulator::Destroy(); }
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  using Received = std::function<void(int from, std::int64_t bytes)>;
  // `received` is told of all bytes that have come so far.
  void listen(int host, Received received) {
    Ptr<ns3::Socket> door = ns3::Socket::CreateSocket(hosts_.Get(index(host)), ns3::TcpSocketFactory::GetTypeId());
    door->Bind(ns3::InetSocketAddress(ns3::Ipv4Address::GetAny(), kDoor));
    door->Listen();
    door->SetAcceptCallback(ns3::MakeNullCallback<bool, Ptr<ns3::Socket>, const ns3::Address&>(),
                            [this, received](Ptr<ns3::Socket> socket, const ns3::Address& peer) {
                              const int from = host_at(ns3::InetSocketAddress::ConvertFrom(peer).GetIpv4());
                              auto total = std::make_shared<std::int64_t>(0);
                              socket->SetRecvCallback([this, received, from, total](Ptr<ns3::Socket> readable) {
                                while (Ptr<ns3::Packet> packet = readable->Recv()) {
                                  if (packet->GetSize() == 0) break;
                                  *total += packet->GetSize();
                                }
                                received(from, *total);
                              });
                              accepted_.push_back(socket);
                            });
    accepted_.push_back(door);
  }

  Ptr<ns3::Socket> connect(int from, int to) {
    Ptr<ns3::Socket> socket = ns3::Socket::CreateSocket(hosts_.Get(index(from)), ns3::TcpSocketFactory::GetTypeId());
    socket->TraceConnectWithoutContext("CongState", ns3::MakeCallback(&Simulation::congestion_state, this));
    socket->Bind();
    const ns3::InetSocketAddress door(addresses_[index(to)], kDoor);
    ns3::Simulator::Schedule(ns3::Seconds(kBegin / 2), [socket, door] { socket->Connect(door); });
    return socket;
  }

  static void send(const Ptr<ns3::Socket>& socket, std::int64_t bytes) {
    socket->Send(ns3::Create<ns3::Packet>(static_cast<std::uint32_t>(bytes)));
  }

  // `begin` is called when connections stand; ends when `count` ends have been told.
  Outcome run(int count, std::function<void()> begin) {
    left_ = count;
    ns3::Simulator::Schedule(ns3::Seconds(kBegin), [begin] { begin(); });
    ns3::Simulator::Stop(ns3::Seconds(100));
    ns3::Simulator::Run();
    if (left_ > 0) throw std::runtime_error("ns-3: messages have not arrived within 100 s");
    for (const Ptr<ns3::QueueDisc>& port : ports_) {
      outcome_.dropped += port->GetStats().nTotalDroppedPackets;
      outcome_.marked += port->GetStats().nTotalMarkedPackets;
    }
    return outcome_;
  }
  void ended() {
    outcome_.ends.push_back(ns3::Simulator::Now().GetSeconds() - kBegin);
    if (--left_ == 0) ns3::Simulator::Stop();
  }

 private:
  static std::uint32_t index(int host) { return static_cast<std::uint32_t>(host); }
  int host_at(const ns3::Ipv4Address& address) const {
    return static_cast<int>(std::find(addresses_.begin(), addresses_.end(), address) - addresses_.begin());
  }
  void congestion_state(ns3::TcpSocketState::TcpCongState_t, ns3::TcpSocketState::TcpCongState_t now) {
    if (now == ns3::TcpSocketState::CA_LOSS) ++outcome_.timeouts;
  }

  // A link between a host and the switch; both ends queue above a device that holds one frame.
  void join(int host, const Star& star, const Transport& transport) {
    ns3::PointToPointHelper link;
    link.SetDeviceAttribute("DataRate",
                            ns3::DataRateValue(ns3::DataRate(static_cast<std::uint64_t>(8 * star.bytes_per_s))));
    link.SetChannelAttribute("Delay", ns3::TimeValue(ns3::PicoSeconds(static_cast<std::uint64_t>(star.hop_s * 1e12))));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", ns3::StringValue("1p"));
    const ns3::NetDeviceContainer devices = link.Install(hosts_.Get(index(host)), switch_.Get(0));

    ns3::TrafficControlHelper at_host, at_switch;
    at_host.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize", ns3::StringValue("10000000p"));
    at_host.Install(devices.Get(0));
    if (transport.port_segments == 0)
      at_switch.SetRootQueueDisc("ns3::RedQueueDisc", "MaxSize", ns3::StringValue("10000000p"), "UseEcn",
                                 ns3::BooleanValue(true), "UseHardDrop", ns3::BooleanValue(false), "QW",
                                 ns3::DoubleValue(1), "MinTh", ns3::DoubleValue(kMarkedFrom), "MaxTh",
                                 ns3::DoubleValue(kMarkedFrom), "Gentle", ns3::BooleanValue(false), "MeanPktSize",
                                 ns3::UintegerValue(kFrame));
    else
      at_switch.SetRootQueueDisc("ns3::FifoQueueDisc", "MaxSize",
                                 ns3::StringValue(std::to_string(transport.port_segments) + "p"));
    ports_.push_back(at_switch.Install(devices.Get(1)).Get(0));

    ns3::Ipv4AddressHelper network(("10.1." + std::to_string(host) + ".0").c_str(), "255.255.255.0");
    const ns3::Ipv4InterfaceContainer ends = network.Assign(devices);
    addresses_.push_back(ends.GetAddress(0));
    ns3::Ipv4StaticRoutingHelper routing;
    routing.GetStaticRouting(hosts_.Get(index(host))->GetObject<ns3::Ipv4>())->SetDefaultRoute(ends.GetAddress(1), 1);
  }

  ns3::NodeContainer hosts_, switch_;
  std::vector<ns3::Ipv4Address> addresses_;
  std::vector<Ptr<ns3::QueueDisc>> ports_;
  std::vector<Ptr<ns3::Socket>> accepted_;
  int left_ = 0;  // ends that have not been told
  Outcome outcome_;
};

}  // namespace

double Outcome::last() const {
  return *std::max_element(ends.begin(), ends.end());
}
double Outcome::first() const {
  return *std::min_element(ends.begin(), ends.end());
}

Outcome incast(const Star& star, std::int64_t bytes, const Transport& transport) {
  Simulation simulation(star, transport);
  simulation.listen(0, [&](int, std::int64_t received) {
    if (received == bytes) simulation.ended();
  });
  std::vector<Ptr<ns3::Socket>> senders;
  for (int h = 1; h < star.hosts; ++h) senders.push_back(simulation.connect(h, 0));
  return simulation.run(star.hosts - 1, [&] {
    for (const Ptr<ns3::Socket>& sender : senders) Simulation::send(sender, bytes);
  });
}

Outcome ring(const Star& star, int steps, std::int64_t bytes, const Transport& transport) {
  Simulation simulation(star, transport);
  const auto hosts = static_cast<std::size_t>(star.hosts);
  std::vector<Ptr<ns3::Socket>> to_next;
  std::vector<int> sent(hosts, 0);
  const auto send_up_to = [&](std::size_t h, std::int64_t messages) {
    for (; sent[h] < std::min<std::int64_t>(messages, steps); ++sent[h]) Simulation::send(to_next[h], bytes);
  };
  for (std::size_t h = 0; h < hosts; ++h)
    simulation.listen(static_cast<int>(h), [&, h](int, std::int64_t received) {
      send_up_to(h, 1 + received / bytes);
      if (received == steps * bytes) simulation.ended();
    });
  for (std::size_t h = 0; h < hosts; ++h)
    to_next.push_back(simulation.connect(static_cast<int>(h), static_cast<int>((h + 1) % hosts)));
  return simulation.run(star.hosts, [&] {
    for (std::size_t h = 0; h < hosts; ++h) send_up_to(h, 1);
  });
}

}  // namespace rehearse::packets
