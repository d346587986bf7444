#include "lessons/grader/confine/view.hpp"

#include <initializer_list>

#include "src/os/environment.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

/// Returns those that are there.
std::vector<fs::path> existing(std::initializer_list<fs::path> paths) {
    std::vector<fs::path> found;
    std::error_code error;
    for (const fs::path& path : paths)
        if (fs::exists(path, error)) found.push_back(path);
    return found;
}

/// Returns what is in the folder but for pages and data, among which an installed
/// Lockstep has what answers are compared with.
std::vector<fs::path> all_but_share(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code error;
    for (fs::directory_iterator each(folder, error), end; !error && each != end;
         each.increment(error))
        if (each->path().filename() != "share") found.push_back(each->path());
    return found;
}

}  // namespace

std::vector<fs::path> system_libraries() {
    return existing({"/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64",
                     "/usr/local/lib", "/etc/ld.so.cache"});
}

std::vector<fs::path> toolchain_files(const std::string& compiler) {
    std::vector<fs::path> files =
        existing({"/bin", "/sbin", "/etc/alternatives", "/dev/urandom"});
    for (const char* folder : {"/usr", "/usr/local"})
        for (const fs::path& part : all_but_share(folder))
            if (part != "/usr/local") files.push_back(part);
    const std::string found = os::find_on_path(compiler);
    std::error_code error;
    const fs::path named = fs::absolute(found.empty() ? compiler : found);
    const fs::path program = fs::canonical(named, error);
    if (error) return files;
    if (named != program) files.push_back(named);  // it is started by this name
    if (program.string().starts_with("/usr/")) return files;
    const fs::path folder = program.parent_path();
    files.push_back(program);
    if (folder.filename() != "bin") return files;
    for (const char* part : {"bin", "include", "lib", "lib64", "libexec", "share"})
        for (const fs::path& own : existing({folder.parent_path() / part}))
            files.push_back(own);
    return files;
}

}  // namespace lockstep::lessons
