#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/grader/kit.hpp"
#include "lessons/runner/command.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/core/require.hpp"
#include "src/os/child.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

int pack_gradescope(const GradescopeRequest& request) {
    const Assignment& assignment = find_assignment(request.slug);
    const std::string name = printable(request.file.string());
    require(!fs::exists(fs::symlink_status(request.file)) ||
                fs::is_regular_file(request.file),
            [&] { return name + ": what is there is not a file"; });
    const fs::path root = Kit::find().sources();
    const os::Child packing = os::run_child(
        {"python3", "-B", (root / "lessons/grader/gradescope/pack.py").string(),
         root.string(), assignment.slug, fs::absolute(request.file).string()});
    if (packing.status != 0) {
        const std::string& said = packing.errors;
        const std::size_t last = said.find_last_of('\n', said.size() - 2);
        throw MissingError(fmt::format(
            "{} could not be packed: {}", name,
            printable(said.substr(last == std::string::npos ? 0 : last + 1))));
    }
    print(
        fmt::format("{} is an autograder for {}: upload it to Gradescope, with Ubuntu "
                    "24.04 as the base image.\n",
                    name, assignment.slug));
    return kSuccess;
}

}  // namespace lockstep::lessons
