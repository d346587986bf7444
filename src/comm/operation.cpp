#include "src/comm/operation.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/run/diagnosis.hpp"

namespace lockstep {

std::string text_of(const CommRequest& request) {
    return text_of(request, fmt::format("rank {}", request.peer));
}

std::string text_of(const CommRequest& request, const std::string& peer) {
    if (!facts_of(request.verb).moves())
        return fmt::format("{}()", name_of(request.verb));
    if (request.all_to_all_v)
        return fmt::format("all_to_all_v({} {} x {} {} {})",
                           request.verb == Verb::send ? "sends" : "receives",
                           request.count, name_of(request.dtype),
                           request.verb == Verb::send ? "to" : "from", peer);
    std::string text = fmt::format("{}(", name_of(request.verb));
    if (has_reduction(request.verb))
        text += fmt::format("{}, ", name_of(request.reduction));
    text += fmt::format("{} x {}", request.count, name_of(request.dtype));
    if (facts_of(request.verb).has_root()) text += fmt::format(", root {}", request.peer);
    if (request.verb == Verb::send) text += ", to " + peer;
    if (request.verb == Verb::recv) text += ", from " + peer;
    return text + ")";
}

bool same_signature(const CommRequest& a, const CommRequest& b) {
    return a.verb == b.verb && a.count == b.count && a.dtype == b.dtype &&
           a.peer == b.peer && (a.reduction == b.reduction || !has_reduction(a.verb));
}

std::int64_t CommOperation::bytes() const {
    return std::max(input ? input.bytes() : 0, output ? output.bytes() : 0);
}

void add_verb(std::string& name, const CommRequest& request) {
    const char* const verb =
        request.all_to_all_v ? "all_to_all_v" : name_of(request.verb);
    if (name.find(verb) != std::string::npos) return;
    name += (name.empty() ? "" : " + ") + std::string(verb);
}

std::string member_text(const std::vector<int>& members) {
    constexpr std::size_t kListed = 16;
    if (std::is_sorted(members.begin(), members.end())) return ranks_text(members);
    const std::size_t listed = std::min(members.size(), kListed);
    return fmt::format(
        "ranks {}{}",
        fmt::join(members.begin(), members.begin() + static_cast<std::ptrdiff_t>(listed),
                  ", "),
        listed < members.size() ? fmt::format(" and {} more", members.size() - listed)
                                : "");
}

std::string text_of(const SplitRequest& request) {
    if (!request.members.empty())
        return fmt::format("{}({}, of {})", request.same_on_all ? "subgroup" : "split",
                           request.name, member_text(request.members));
    if (request.color < 0) return fmt::format("split({}, no colour)", request.name);
    return fmt::format("split({}, colour {})", request.name, request.color);
}

}  // namespace lockstep
