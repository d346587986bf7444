#include <algorithm>
#include <cctype>

#include "lessons/grader/kit.hpp"
#include "lessons/runner/command_line.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/core/require.hpp"
#include "src/report/files.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

void declare_fault(CommandLine& line) {
    Command& command =
        line.add("fault",
                 "Shows the page on a kind of mistake: the least program that makes it, "
                 "what is printed, why a cluster hangs or lies, and the cure.");
    auto& request = command.asks_for<FaultRequest>();
    command.positional("FAULT",
                       "as a diagnosis names it: F01 to F31; README for all of them",
                       text_into(request.fault));
}

int run(const FaultRequest& request) {
    constexpr std::uint64_t kLongestPage = 1 << 20;
    const std::filesystem::path folder = Kit::find().faults();
    std::string name = request.fault;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) {
        return static_cast<char>(std::toupper(letter));
    });
    // A name, not a path.
    const bool known =
        std::all_of(name.begin(), name.end(),
                    [](unsigned char letter) { return std::isalnum(letter) != 0; }) &&
        std::filesystem::is_regular_file(folder / (name + ".md"));
    require(known, "there is no fault '{}'; they are F01 to F31",
            printable(request.fault));
    print(read_text_file(folder / (name + ".md"), kLongestPage));
    return kSuccess;
}

}  // namespace lockstep::lessons
