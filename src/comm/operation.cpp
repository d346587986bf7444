#include "src/comm/operation.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/run/diagnosis.hpp"

namespace lockstep {

std::string text_of(const CommOperation& operation) {
    if (!facts_of(operation.verb).moves())
        return fmt::format("{}()", name_of(operation.verb));
    if (operation.all_to_all_v)
        return fmt::format("all_to_all_v({} {} x {} {} rank {})",
                           operation.verb == Verb::send ? "sends" : "receives",
                           operation.count, name_of(operation.dtype),
                           operation.verb == Verb::send ? "to" : "from", operation.peer);
    std::string text = fmt::format("{}(", name_of(operation.verb));
    if (has_reduction(operation.verb))
        text += fmt::format("{}, ", name_of(operation.reduction));
    text += fmt::format("{} x {}", operation.count, name_of(operation.dtype));
    if (facts_of(operation.verb).has_root())
        text += fmt::format(", root {}", operation.peer);
    if (operation.verb == Verb::send) text += fmt::format(", to rank {}", operation.peer);
    if (operation.verb == Verb::recv)
        text += fmt::format(", from rank {}", operation.peer);
    return text + ")";
}

bool same_signature(const CommOperation& a, const CommOperation& b) {
    return a.verb == b.verb && a.count == b.count && a.dtype == b.dtype &&
           a.peer == b.peer && (a.reduction == b.reduction || !has_reduction(a.verb));
}

std::int64_t CommOperation::bytes() const {
    return std::max(input ? input.bytes() : 0, output ? output.bytes() : 0);
}

void add_verb(std::string& name, const CommOperation& operation) {
    const char* const verb =
        operation.all_to_all_v ? "all_to_all_v" : name_of(operation.verb);
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
