// Each flow goes between two hosts of its own, over a route of the links it crosses.
#include "simgrid_flows.h"

#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <simgrid/s4u.hpp>
#include <stdexcept>
#include <string>

namespace rehearse::oracle {
namespace {

namespace s4u = simgrid::s4u;

void write_all(int file, const std::vector<double>& values) {
  const char* data = reinterpret_cast<const char*>(values.data());
  for (std::size_t left = values.size() * sizeof(double); left > 0;) {
    const ssize_t n = write(file, data, left);
    if (n <= 0) _exit(3);
    data += n;
    left -= static_cast<std::size_t>(n);
  }
}

std::vector<double> run(const std::vector<std::int64_t>& bytes_per_s, const std::vector<Flow>& flows,
                        const std::vector<Change>& changes) {
  std::vector<std::string> words = {"oracle",
                                    "--cfg=network/model:CM02",
                                    "--cfg=network/crosstraffic:0",
                                    "--cfg=network/TCP-gamma:0",
                                    "--cfg=network/weight-S:0",
                                    "--cfg=network/latency-factor:1",
                                    "--cfg=network/bandwidth-factor:1",
                                    "--cfg=network/loopback-lat:0",
                                    "--cfg=surf/precision:1e-13",
                                    "--cfg=maxmin/precision:1e-9",
                                    "--log=root.threshold:error"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  int argc = static_cast<int>(argv.size());
  s4u::Engine engine(&argc, argv.data());

  auto* zone = s4u::create_full_zone("zone");
  std::vector<s4u::Link*> links;
  for (std::size_t l = 0; l < bytes_per_s.size(); ++l)
    links.push_back(zone->create_link("l" + std::to_string(l), static_cast<double>(bytes_per_s[l]))
                        ->set_latency(0)
                        ->set_sharing_policy(s4u::Link::SharingPolicy::SHARED)
                        ->seal());
  std::vector<std::pair<s4u::Host*, s4u::Host*>> ends;
  for (std::size_t f = 0; f < flows.size(); ++f) {
    auto* from = zone->create_host("from" + std::to_string(f), 1e9)->seal();
    auto* to = zone->create_host("to" + std::to_string(f), 1e9)->seal();
    std::vector<s4u::LinkInRoute> route;
    for (const std::int32_t l : flows[f].links) route.emplace_back(links[static_cast<std::size_t>(l)]);
    zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, route, false);
    ends.emplace_back(from, to);
  }
  zone->seal();

  std::vector<double> done(flows.size(), -1);
  for (std::size_t f = 0; f < flows.size(); ++f)
    s4u::Actor::create("flow" + std::to_string(f), ends[f].first, [&, f] {
      s4u::this_actor::sleep_until(static_cast<double>(flows[f].start_ps) * 1e-12);
      s4u::Comm::sendto(ends[f].first, ends[f].second, static_cast<std::uint64_t>(flows[f].bytes));
      done[f] = s4u::Engine::get_clock();
    });
  for (std::size_t c = 0; c < changes.size(); ++c)
    s4u::Actor::create("change" + std::to_string(c), ends.front().first, [&, c] {
      s4u::this_actor::sleep_until(static_cast<double>(changes[c].at_ps) * 1e-12);
      links[static_cast<std::size_t>(changes[c].link)]->set_bandwidth(static_cast<double>(changes[c].bytes_per_s));
    });
  engine.run();
  return done;
}

}  // namespace

std::vector<double> simgrid_ends(const std::vector<std::int64_t>& bytes_per_s, const std::vector<Flow>& flows,
                                 const std::vector<Change>& changes) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) throw std::runtime_error("pipe");
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) {
    close(pipe_ends[0]);
    try {
      write_all(pipe_ends[1], run(bytes_per_s, flows, changes));
    } catch (const std::exception& error) {
      std::cerr << "SimGrid: " << std::string(error.what()).substr(0, 300) << "\n";
      _exit(4);
    }
    _exit(0);
  }
  close(pipe_ends[1]);
  std::vector<double> ends(flows.size());
  char* data = reinterpret_cast<char*>(ends.data());
  std::size_t left = ends.size() * sizeof(double);
  for (ssize_t n = 1; left > 0 && (n = read(pipe_ends[0], data, left)) > 0; left -= static_cast<std::size_t>(n))
    data += n;
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (left > 0 || status != 0) throw std::runtime_error("SimGrid ended with status " + std::to_string(status));
  return ends;
}

}  // namespace rehearse::oracle
