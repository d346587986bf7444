#include "lessons/grader/confine/view.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>

#include "src/os/environment.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

/// Returns those paths that exist.
std::vector<fs::path> existing(std::initializer_list<fs::path> paths) {
    std::vector<fs::path> found;
    std::error_code error;
    for (const fs::path& path : paths)
        if (fs::exists(path, error)) found.push_back(path);
    return found;
}

/// Returns the folders in `prefix` that a compiler needs: its own, and those for other
/// processors ("aarch64-linux-gnu"). Sources, pages and data are left out, because an
/// installed Lockstep keeps the data of the right answers there.
std::vector<fs::path> compiler_folders(const fs::path& prefix) {
    std::vector<fs::path> found;
    std::error_code error;
    for (fs::directory_iterator each(prefix, error), end; !error && each != end;
         each.increment(error)) {
        const std::string name = each->path().filename().string();
        constexpr std::array kOwn{"bin", "sbin", "include", "libexec"};
        if (std::ranges::find(kOwn, name) != kOwn.end() || name.starts_with("lib") ||
            name.find("-linux-") != std::string::npos)
            found.push_back(each->path());
    }
    return found;
}

/// Adds what an installed Lockstep has in the folder.
void add_lockstep_of(const fs::path& folder, std::vector<fs::path>& all) {
    std::error_code error;
    for (fs::directory_iterator each(folder, error), end; !error && each != end;
         each.increment(error)) {
        const std::string name = each->path().filename().string();
        if ((name == "lockstep" || name.starts_with("liblockstep")) &&
            !each->is_symlink(error))
            all.push_back(fs::canonical(each->path(), error));
    }
}

}  // namespace

bool is_below(const fs::path& path, const std::vector<fs::path>& folders) {
    return std::ranges::any_of(folders, [&](const fs::path& folder) {
        return path != folder && std::ranges::mismatch(folder, path).in1 == folder.end();
    });
}

std::vector<fs::path> system_libraries() {
    return existing({"/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64",
                     "/usr/local/lib", "/etc/ld.so.cache"});
}

const std::vector<fs::path>& installed_lockstep() {
    static const std::vector<fs::path> found = [] {
        std::vector<fs::path> all;
        for (const char* prefix : {"/usr", "/usr/local"})
            for (const fs::path& folder : compiler_folders(prefix)) {
                add_lockstep_of(folder, all);
                std::error_code error;
                for (fs::directory_iterator each(folder, error), end;
                     !error && each != end; each.increment(error))
                    if (each->path().filename().string().find("-linux-") !=
                        std::string::npos)
                        add_lockstep_of(each->path(), all);
            }
        return all;
    }();
    return found;
}

std::vector<fs::path> toolchain_files(const std::string& compiler) {
    std::vector<fs::path> files =
        existing({"/bin", "/sbin", "/etc/alternatives", "/dev/urandom"});
    for (const char* prefix : {"/usr", "/usr/local"})
        std::ranges::copy(compiler_folders(prefix), std::back_inserter(files));
    const std::string found = os::find_on_path(compiler);
    std::error_code error;
    const fs::path named = fs::absolute(found.empty() ? compiler : found);
    const fs::path program = fs::canonical(named, error);
    if (error) return files;
    if (named != program) files.push_back(named);  // its path with links
    if (is_below(program, files)) return files;
    const fs::path folder = program.parent_path();
    files.push_back(program);
    if (folder.filename() == "bin")
        std::ranges::copy(compiler_folders(folder.parent_path()),
                          std::back_inserter(files));
    return files;
}

}  // namespace lockstep::lessons
