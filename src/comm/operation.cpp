#include "src/comm/operation.hpp"

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

}  // namespace lockstep
