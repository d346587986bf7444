#include "lessons/grader/kit.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/os/child.hpp"
#include "src/report/files.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

Kit Kit::find() {
    const fs::path folder = fs::path(os::folder_of_program()) / "kit";
    if (fs::is_directory(folder / "lib")) return Kit(folder);
    throw MissingError(
        fmt::format("what students' programs are built with is not in {}; "
                    "build or install Lockstep anew",
                    folder.string()));
}

fs::path Kit::handout(const std::string& slug) const {
    return folder_ / "assignments" / slug / "handout";
}

fs::path Kit::grading(const std::string& slug) const {
    return folder_ / "assignments" / slug / "grading";
}

fs::path Kit::sources() const {
    constexpr std::uint64_t kLongestPath = 4096;
    const fs::path note = folder_ / "sources";
    if (fs::exists(note)) {
        fs::path root = read_text_file(note, kLongestPath);
        if (fs::exists(root / "lessons")) return root;
    }
    throw MissingError("this needs Lockstep's sources: run it as ./lockstep in a clone");
}

Kit Kit::copied_to(const fs::path& folder) const {
    fs::create_directories(folder);
    for (const char* part : {"include", "lib"})
        fs::copy(folder_ / part, folder / part, fs::copy_options::recursive);
    return Kit(folder);
}

std::vector<std::string> Kit::compile_flags() const {
    return {"-std=c++20", "-O1", "-g1", "-w", "-I" + include().string()};
}

std::vector<std::string> Kit::link_flags(const std::string& slug) const {
    std::string name = slug;
    std::replace(name.begin(), name.end(), '-', '_');
    // The tasks call the library, whose main calls the tasks.
    return {"-L" + (folder_ / "lib").string(),
            "-Wl,--start-group",
            "-llockstep_rank",
            "-ltasks_" + name,
            "-Wl,--end-group",
            "-lfmt",
            "-lboost_context",
            "-pthread"};
}

}  // namespace lockstep::lessons
