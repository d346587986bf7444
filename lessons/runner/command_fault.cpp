#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "lessons/runner/command_line.hpp"
#include "lessons/runner/fault_pages.hpp"
#include "lessons/runner/reader.hpp"
#include "src/core/require.hpp"
#include "src/run/fault_text.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

void declare_fault(CommandLine& line) {
    Command& command = line.add(
        "fault",
        "Shows the page on a kind of mistake: the smallest program with it, what is "
        "printed, why a real cluster hangs or gives wrong numbers, and the cure.");
    auto& request = command.asks_for<FaultRequest>();
    command.positional(
        "FAULT",
        fmt::format("the id in a diagnosis, {} to {}; README for all of them",
                    fault_classes().front().id, fault_classes().back().id),
        text_into(request.fault));
    std::vector<std::string> names{"README"};
    for (const FaultClass& fault : fault_classes())
        names.emplace_back(fault.id);
    command.suggest(std::move(names));
    declare_language(command, request.language);
}

int run(const FaultRequest& request) {
    std::string name = request.fault;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) {
        return static_cast<char>(std::toupper(letter));
    });
    const Document page = fault_page(name, language_of(request.language));
    require(!page.empty(), "there is no fault '{}'; they are {} to {}",
            printable(request.fault), fault_classes().front().id,
            fault_classes().back().id);
    print_document(page);
    return kSuccess;
}

}  // namespace lockstep::lessons
