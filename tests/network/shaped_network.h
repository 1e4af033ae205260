// Hosts on one machine, joined by links of a set bandwidth: network namespaces, veth pairs, bridges inside a namespace
// of their own, and a token bucket (tbf; htb on trunks) at both ends of every link, which holds it to its rate in each
// direction. All that is made is inside namespaces of our own and goes with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rehearse::network {

class ShapedNetwork {
 public:
  // Why this machine cannot have one ("ip netns add: Operation not permitted"), or "".
  static std::string problem();

  ShapedNetwork();
  ~ShapedNetwork();  // deletes the namespaces
  ShapedNetwork(const ShapedNetwork&) = delete;
  ShapedNetwork& operator=(const ShapedNetwork&) = delete;

  void add_switch(const std::string& name);
  // A host with one interface, eth0, on a switch. Rates as tc writes them: "200mbit".
  void add_host(const std::string& name, const std::string& on_switch, const std::string& rate);
  // A trunk between two switches, after the hosts: each host that sends through it has its share of the rate at least,
  // and what others leave (htb, a class a host). Without that TCP's connections divide a queue by chance, and two rings
  // that wait for both of their directions leave part of it idle.
  void join(const std::string& switch_a, const std::string& switch_b, int rate_mbit);
  // A command as a program of that host: "ip netns exec NAMESPACE ".
  std::string on(const std::string& host) const;

  // Bytes that the hosts' interfaces have sent so far, headers and acknowledgements too.
  std::int64_t sent_by_hosts() const;

 private:
  std::string space(const std::string& name) const;
  std::string address(const std::string& host) const;
  void run(const std::string& command) const;
  void shape(const std::string& namespace_name, const std::string& interface, const std::string& rate) const;
  // At the port that leaves `senders_switch`, whose hosts send through it.
  void share(const std::string& interface, const std::string& senders_switch, int rate_mbit) const;

  std::string prefix_;
  std::vector<std::string> spaces_;
  std::vector<std::string> hosts_, switch_of_host_;  // in the order of their addresses
  int interfaces_ = 0;
};

}  // namespace rehearse::network
