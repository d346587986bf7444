#include "lessons/book/site.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "lessons/page/sha256.hpp"
#include "src/core/require.hpp"
#include "src/report/files.hpp"
#include "src/report/version.hpp"
#include "src/text/json.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

constexpr const char* kList = "site.json";
constexpr std::uint64_t kLongestList = 1 << 20;
constexpr std::uint64_t kLargestFile = 64 << 20;

/// The SHA-256 of a site's files, by path. While one site is written over another, a file
/// may belong to either site, so it can have two sums.
using Written = std::map<std::string, std::set<std::string>>;

/// Returns the first symbolic link on the path from the folder to a file, or the file if
/// it is one; empty if there is none.
fs::path link_on_the_way(const fs::path& folder, const fs::path& file) {
    fs::path way;
    for (const fs::path& part : file) {
        way /= part;
        if (fs::is_symlink(folder / way)) return way;
    }
    return {};
}

/// Returns whether a path names a file in the folder. Someone else may have written the
/// list, so it must not make us remove files elsewhere.
bool stays_inside(const fs::path& path) {
    return !path.empty() && path.is_relative() &&
           std::ranges::find(path, "..") == path.end();
}

/// Returns the files of an earlier site in the folder; none if there is no list.
std::optional<Written> listed_files(const fs::path& folder) {
    require(!fs::is_symlink(folder / kList),
            "{}: {} in it is a link; nothing was written, name another folder",
            printable(folder.string()), kList);
    if (!fs::exists(folder / kList)) return std::nullopt;
    Written files;
    try {
        const Json list = Json::parse(read_text_file(folder / kList, kLongestList));
        list.at("lockstep").get<std::string>();
        for (const auto& [name, sums] : list.at("files").members())
            for (const Json& sum : sums.elements())
                if (stays_inside(name)) files[name].insert(sum.get<std::string>());
    } catch (const JsonError& error) {
        throw UsageError(printable((folder / kList).string()) +
                         ": this is no list of a site's files; nothing was written, name "
                         "another folder");
    }
    return files;
}

void write_list(const fs::path& folder, const Written& written) {
    Json files = Json::object();
    for (const auto& [name, sums] : written)
        files[name] = Json(std::vector<std::string>(sums.begin(), sums.end()));
    const Json list{{"lockstep", kVersion}, {"files", std::move(files)}};
    write_text_file(folder / kList, list.dump(0) + "\n");
}

Written written_by(const Site& site) {
    Written files;
    for (const auto& [name, text] : site)
        files[name].insert(sha256(text));
    return files;
}

/// Returns whether a site wrote this file and it has not changed; true if it is missing.
bool is_ours(const fs::path& file, const std::set<std::string>& sums) {
    const fs::file_status status = fs::symlink_status(file);
    return !fs::exists(status) ||
           (fs::is_regular_file(status) && fs::file_size(file) <= kLargestFile &&
            sums.contains(sha256(read_text_file(file, kLargestFile))));
}

/// Throws UsageError if a foreign file is in the place of one of the site's files, or if
/// a link would lead out of the folder.
void require_places(const fs::path& folder, const Written& ours, const Site& site) {
    for (const auto& [name, text] : site) {
        const fs::path link = link_on_the_way(folder, name);
        require(link.empty(),
                "{}: {} in it is a link; nothing was written, name another folder",
                printable(folder.string()), printable(link.string()));
        const auto sums = ours.find(name);
        require(is_ours(folder / name,
                        sums == ours.end() ? std::set<std::string>() : sums->second),
                "{}: {} in this folder was not written by a book, or was changed since; "
                "nothing was overwritten, name another folder",
                printable(folder.string()), name);
    }
}

}  // namespace

void take_site_folder(const fs::path& folder) {
    require(!folder.empty(), "the folder for the book has no name");
    require(!fs::exists(folder) || fs::is_directory(folder), [&] {
        return printable(folder.string()) + ": this exists and is no folder";
    });
    fs::create_directories(folder);
    const std::optional<Written> ours = listed_files(folder);
    require(ours || fs::is_empty(folder), [&] {
        return fmt::format(
            "{}: this folder contains {} and is not a book's; nothing was written, name "
            "an empty or a new folder",
            printable(folder.string()),
            printable(fs::directory_iterator(folder)->path().filename().string()));
    });
    if (!ours) write_list(folder, {});
}

void write_site(const fs::path& folder, const Site& site) {
    const Written before = listed_files(folder).value_or(Written());
    require_places(folder, before, site);
    // First list the files of both sites as ours, in case writing is interrupted.
    Written either = before;
    for (const auto& [name, text] : site)
        either[name].insert(sha256(text));
    write_list(folder, either);
    for (const auto& [name, text] : site) {
        fs::create_directories((folder / name).parent_path());
        write_text_file(folder / name, text);
    }
    for (const auto& [name, sums] : before)
        if (!site.contains(name) && link_on_the_way(folder, name).empty() &&
            is_ours(folder / name, sums))
            fs::remove(folder / name);
    write_list(folder, written_by(site));
}

}  // namespace lockstep::lessons
