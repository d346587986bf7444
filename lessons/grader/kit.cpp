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
    throw MissingError(fmt::format(
        "the kit for students' programs is not in {}; build or install Lockstep again",
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

fs::path Kit::more_include(const std::string& slug) const {
    return folder_ / "more" / slug / "include";
}

std::vector<std::string> Kit::rank_libraries(const std::string& slug) const {
    std::string name = slug;
    std::replace(name.begin(), name.end(), '-', '_');
    std::vector<std::string> libraries{"lockstep_rank", "tasks_" + name};
    if (fs::exists(more_include(slug))) libraries.push_back("more_" + name);
    return libraries;
}

std::vector<fs::path> Kit::parts(const std::string& slug) const {
    std::vector<fs::path> parts{include(), folder_ / "lib"};
    if (fs::exists(more_include(slug))) parts.push_back(more_include(slug));
    return parts;
}

Kit Kit::copied_to(const fs::path& folder, const std::string& slug) const {
    const auto copy = [&](const fs::path& part) {
        fs::create_directories((folder / part).parent_path());
        fs::copy(folder_ / part, folder / part, fs::copy_options::recursive);
    };
    copy("include");
    for (const std::string& library : rank_libraries(slug))
        copy(fs::path("lib") / fmt::format("lib{}.a", library));
    if (fs::exists(more_include(slug))) copy(fs::path("more") / slug);
    return Kit(folder);
}

std::vector<std::string> Kit::compile_flags(const std::string& slug) const {
    std::vector<std::string> flags{"-std=c++20", "-O1", "-g1", "-w",
                                   "-I" + include().string()};
    if (fs::exists(more_include(slug)))
        flags.push_back("-I" + more_include(slug).string());
    return flags;
}

std::vector<std::string> Kit::link_flags(const std::string& slug) const {
    // The tasks call the library, and the library's main calls the tasks.
    std::vector<std::string> flags{"-L" + (folder_ / "lib").string(),
                                   "-Wl,--start-group"};
    for (const std::string& library : rank_libraries(slug))
        flags.push_back("-l" + library);
    flags.insert(flags.end(),
                 {"-Wl,--end-group", "-lfmt", "-lboost_context", "-pthread"});
    return flags;
}

}  // namespace lockstep::lessons
