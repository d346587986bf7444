#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace lockstep::lessons {

/// The files of a web site, by their paths inside of it: "zh/F16.html".
using Site = std::map<std::string, std::string>;

/// Makes the folder if it is not there, and marks it as a site's: site.json lists the
/// site's files, with the SHA-256 of each. Throws UsageError, naming the folder, if it
/// holds anything and is no site's, and std::system_error if nothing can be written
/// there.
void take_site_folder(const std::filesystem::path& folder);

/// Writes the site into a folder that was taken. What an earlier site had left there and
/// this one does not have is removed, if it is as that site wrote it; no other file is
/// touched. Throws UsageError, and writes nothing, if a link or a file that no site has
/// written is in the place of one.
void write_site(const std::filesystem::path& folder, const Site& site);

}  // namespace lockstep::lessons
