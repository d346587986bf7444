#include "src/comm/operation.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {

std::string text_of(const CommOperation& operation) {
    if (operation.verb == Verb::barrier || operation.verb == Verb::split)
        return fmt::format("{}()", name_of(operation.verb));
    std::string text = fmt::format("{}(", name_of(operation.verb));
    if (has_reduction(operation.verb))
        text += fmt::format("{}, ", name_of(operation.reduction));
    text += fmt::format("{} x {}", operation.count, name_of(operation.dtype));
    if (has_root(operation.verb)) text += fmt::format(", root {}", operation.peer);
    if (operation.verb == Verb::send) text += fmt::format(", to rank {}", operation.peer);
    if (operation.verb == Verb::recv)
        text += fmt::format(", from rank {}", operation.peer);
    return text + ")";
}

std::int64_t CommOperation::bytes() const {
    return std::max(input ? input.bytes() : 0, output ? output.bytes() : 0);
}

void add_verb(std::string& name, Verb verb) {
    if (name.find(name_of(verb)) != std::string::npos) return;
    name += (name.empty() ? "" : " + ") + std::string(name_of(verb));
}

}  // namespace lockstep
