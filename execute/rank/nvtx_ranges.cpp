// See op_ranges.h.
#include <nvtx3/nvToolsExt.h>

#include "execute/rank/op_ranges.h"

namespace rehearse::execute {

// Without a profiler NVTX creates no domain.
OpRanges::OpRanges(const Timeline& timeline, int rank) {
  nvtxDomainHandle_t const domain = nvtxDomainCreateA("rehearse");
  if (domain == nullptr) return;
  domain_ = domain;
  const auto registered = [&](const std::string& name) {
    return static_cast<void*>(nvtxDomainRegisterStringA(domain, name.c_str()));
  };
  for (const Instance& i : timeline.instances) names_.push_back(registered(range_name(timeline, rank, i)));
  graph_ = registered("rank " + std::to_string(rank) + "/graph");
}

void OpRanges::push(void* name, std::int64_t step) const {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.payloadType = NVTX_PAYLOAD_TYPE_INT64;
  range.payload.llValue = step;
  range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  range.message.registered = static_cast<nvtxStringHandle_t>(name);
  nvtxDomainRangePushEx(static_cast<nvtxDomainHandle_t>(domain_), &range);
}

void OpRanges::pop() const {
  nvtxDomainRangePop(static_cast<nvtxDomainHandle_t>(domain_));
}

}  // namespace rehearse::execute
