// See shaped_network.h. All switches are bridges in one namespace; interface names there are counted, since a name has
// at most 15 characters. Congestion control is reno: the usual default elsewhere; others (bbr) probe the bucket and
// lose part of the rate. Offloads stay on: a bucket of 128 KiB takes their 64 KiB packets.
#include "shaped_network.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "../e2e/program.h"

namespace rehearse::network {
namespace {

constexpr const char* kReno = "sh -c 'echo reno > /proc/sys/net/ipv4/tcp_congestion_control'";

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::string ShapedNetwork::problem() {
  if (::geteuid() != 0) return "needs root";
  const std::string name = "rehearse-probe-" + std::to_string(::getpid());
  const std::string tc = "tc -n " + name + " ";
  const e2e::Outcome outcome = e2e::shell(
      "command -v ip tc >/dev/null || { echo 'ip and tc (iproute2) are not here' >&2; exit 1; }\n"
      "ip netns add " +
      name +
      " || exit 1\n"
      "trap 'ip netns del " +
      name +
      "' EXIT\n"
      "ip -n " +
      name + " link add veth0 type veth peer name veth1 && ip -n " + name + " link add bridge0 type bridge &&\n" + tc +
      "qdisc add dev veth0 root tbf rate 100mbit burst 128kb latency 50ms &&\n" + tc +
      "qdisc add dev veth1 root handle 1: htb &&\n" + tc +
      "class add dev veth1 parent 1: classid 1:1 htb rate 100mbit burst 32kb &&\n" + tc +
      "qdisc add dev veth1 parent 1:1 bfifo limit 300000 &&\n" + tc +
      "filter add dev veth1 parent 1: protocol ip u32 match ip src 10.77.0.1/32 flowid 1:1 &&\n"
      "ip netns exec " +
      name + " " + kReno);
  return outcome.status == 0 ? "" : first_line(outcome.err) + " (exit status " + std::to_string(outcome.status) + ")";
}

ShapedNetwork::ShapedNetwork() : prefix_("rehearse-" + std::to_string(::getpid()) + "-") {
  spaces_.push_back(space("switches"));
  run("ip netns add " + spaces_.back());
}

ShapedNetwork::~ShapedNetwork() {
  for (const std::string& name : spaces_) e2e::shell("ip netns del " + name);
}

std::string ShapedNetwork::space(const std::string& name) const {
  return prefix_ + name;
}

std::string ShapedNetwork::on(const std::string& host) const {
  return "ip netns exec " + space(host) + " ";
}

std::string ShapedNetwork::address(const std::string& host) const {
  return "10.77.0." + std::to_string(1 + (std::find(hosts_.begin(), hosts_.end(), host) - hosts_.begin()));
}

std::int64_t ShapedNetwork::sent_by_hosts() const {
  std::int64_t sent = 0;
  for (const std::string& host : hosts_)
    sent += std::stoll(e2e::shell(on(host) + "cat /sys/class/net/eth0/statistics/tx_bytes").out);
  return sent;
}

void ShapedNetwork::run(const std::string& command) const {
  const e2e::Outcome outcome = e2e::shell(command);
  if (outcome.status != 0) throw std::runtime_error(command + ": " + first_line(outcome.err));
}

void ShapedNetwork::shape(const std::string& namespace_name, const std::string& interface,
                          const std::string& rate) const {
  run("tc -n " + namespace_name + " qdisc add dev " + interface + " root tbf rate " + rate +
      " burst 128kb latency 50ms");
}

void ShapedNetwork::add_switch(const std::string& name) {
  run("ip -n " + spaces_.front() + " link add " + name + " type bridge && ip -n " + spaces_.front() + " link set " +
      name + " up");
}

void ShapedNetwork::add_host(const std::string& name, const std::string& on_switch, const std::string& rate) {
  const std::string own = space(name), port = "p" + std::to_string(interfaces_++);
  run("ip netns add " + own);
  spaces_.push_back(own);
  hosts_.push_back(name);
  switch_of_host_.push_back(on_switch);
  run("ip -n " + own + " link add eth0 type veth peer name " + port + " netns " + spaces_.front());
  run("ip -n " + own + " addr add " + address(name) + "/24 dev eth0 && ip -n " + own + " link set lo up && ip -n " +
      own + " link set eth0 up");
  run("ip -n " + spaces_.front() + " link set " + port + " master " + on_switch + " up");
  run(on(name) + kReno);
  shape(own, "eth0", rate);
  shape(spaces_.front(), port, rate);
}

void ShapedNetwork::join(const std::string& switch_a, const std::string& switch_b, int rate_mbit) {
  const std::string a = "p" + std::to_string(interfaces_++), b = "p" + std::to_string(interfaces_++);
  run("ip -n " + spaces_.front() + " link add " + a + " type veth peer name " + b);
  for (const auto& [port, bridge] : {std::pair(a, switch_a), std::pair(b, switch_b)}) {
    run("ip -n " + spaces_.front() + " link set " + port + " master " + bridge + " up");
    share(port, bridge, rate_mbit);
  }
}

void ShapedNetwork::share(const std::string& interface, const std::string& senders_switch, int rate_mbit) const {
  const std::string tc = "tc -n " + spaces_.front(), device = " dev " + interface + " ";
  const std::string rate = std::to_string(rate_mbit) + "mbit";
  run(tc + " qdisc add" + device + "root handle 1: htb && " + tc + " class add" + device +
      "parent 1: classid 1:1 htb rate " + rate + " burst 128kb cburst 128kb");
  const auto senders = std::count(switch_of_host_.begin(), switch_of_host_.end(), senders_switch);
  for (std::size_t h = 1; h <= switch_of_host_.size(); ++h) {
    if (switch_of_host_[h - 1] != senders_switch) continue;
    const std::string id = "1:" + std::to_string(10 + h);
    run(tc + " class add" + device + "parent 1:1 classid " + id + " htb rate " +
        std::to_string(1000 * rate_mbit / senders) + "kbit ceil " + rate + " burst 128kb cburst 128kb && " + tc +
        " qdisc add" + device + "parent " + id + " bfifo limit 300000 && " + tc + " filter add" + device +
        "parent 1: protocol ip u32 match ip src 10.77.0." + std::to_string(h) + "/32 flowid " + id);
  }
}

}  // namespace rehearse::network
