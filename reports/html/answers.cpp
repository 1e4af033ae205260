// See answers.h; the words are those of the terminal (answers.h).
#include "reports/html/answers.h"

#include <fmt/format.h>

#include "reports/answers.h"
#include "reports/html/text.h"
#include "reports/reinforcement.h"
#include "reports/text.h"

namespace rehearse::reports::html {
namespace {

using result::Result;
using result::StoredResult;

// Each run's part under its name, where there are several runs.
template <class Function>
std::string each(const std::vector<StoredResult>& runs, const RunNames& names, Function&& body) {
  std::string out;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string part = body(runs[i].result);
    if (part.empty()) continue;
    if (runs.size() > 1) out += fmt::format("<h3>{}</h3>\n", escape(names[i]));
    out += part;
  }
  return out;
}

std::string paragraph(const std::string& sentence) {
  return fmt::format("<p>{}</p>\n", escape(sentence));
}

}  // namespace

// Of a step of reinforcement learning.
std::string phases_section(const std::vector<StoredResult>& runs, const RunNames& names) {
  return each(runs, names, [](const Result& r) {
    if (!r.reinforcement.known) return std::string();
    std::vector<std::vector<std::string>> facts{{"", ""}};
    for (const auto& [label, text] : reinforcement_rows(r)) facts.push_back({label, text});
    return table(phase_rows(r)) + table(facts) +
           "<p class=\"note\">Idle: of the time of the devices that a phase is on, the share in which they wait for "
           "the slowest of them. Peak: memory of the fullest device. Collectives, memory by stage and the timeline "
           "are of one update of the actor.</p>\n";
  });
}

std::string samples_section(const std::vector<StoredResult>& runs, const RunNames& names) {
  return each(runs, names, [](const Result& r) {
    if (r.samples.count == 0) return std::string();
    return table(sample_rows(r)) +
           fmt::format(
               "<p class=\"note\">Of {} samples of the noise; all else on this page is sample {}, that of the "
               "median step.</p>\n",
               grouped(static_cast<double>(r.samples.count)), r.samples.reported);
  });
}

std::string noise_section(const std::vector<StoredResult>& runs, const RunNames& names) {
  return each(runs, names, [](const Result& r) {
    std::string out;
    for (const std::string& sentence : noise_sentences(r)) out += paragraph(sentence);
    if (!out.empty())
      out += "<p class=\"note\">Each cost is from a simulation with the same draws without that cause.</p>\n";
    return out;
  });
}

std::string collectives_section(const std::vector<StoredResult>& runs, const RunNames& names) {
  constexpr std::size_t kMost = 12;
  return each(runs, names, [](const Result& r) {
    if (r.collectives.empty()) return std::string();
    std::string more;
    if (r.collectives.size() > kMost) more = fmt::format(" {} more are in result.json.", r.collectives.size() - kMost);
    return table(collective_rows(r, kMost)) +
           fmt::format(
               "<p class=\"note\">Calls of the step over all groups; the time is the mean from when all members "
               "had come; channels are thread blocks on each GPU; known: how the time alone is.{} {}</p>\n",
               more, collective_path_sentence(r));
  });
}

std::string links_section(const std::vector<StoredResult>& runs, const RunNames& names) {
  return each(runs, names, [](const Result& r) {
    if (r.links.busiest.empty()) return std::string();
    std::string sentences;
    for (const result::LinkUse& link : r.links.busiest) sentences += paragraph(link_sentence(r, link));
    return table(link_rows(r, r.links.busiest.size())) +
           "<p class=\"note\">Step: share of the link's capacity over the step; peak: over the tenth of it in which "
           "the "
           "link carries most. Alike: links that carry the same, of which the first is named.</p>\n" +
           details("When each is in use, and for whom", sentences);
  });
}

std::string jobs_section(const std::vector<StoredResult>& runs, const RunNames& names) {
  return each(runs, names, [](const Result& r) {
    if (r.jobs.empty()) return std::string();
    return table(job_rows(r)) +
           "<p class=\"note\">Step: the mean of as many as the column steps says, alongside the other jobs; alone: of "
           "the same steps with the cluster to itself. The first job is the one that all else on this page is "
           "about.</p>\n";
  });
}

std::string what_if_section(const std::vector<StoredResult>& runs, const RunNames& names) {
  return each(runs, names, [](const Result& r) {
    if (r.what_if.empty()) return std::string();
    std::string sentences;
    for (const std::string& sentence : what_if_sentences(r)) sentences += paragraph(sentence);
    return table(what_if_rows(r)) + sentences +
           "<p class=\"note\">The step with one rate or cost halved or doubled, and all else as it is.</p>\n";
  });
}

}  // namespace rehearse::reports::html
