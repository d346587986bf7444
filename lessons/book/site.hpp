#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace lockstep::lessons {

/// The files of a web site, by their paths in it: "zh/F16.html".
using Site = std::map<std::string, std::string>;

/// Makes the folder if it does not exist, and marks it as a site's: site.json lists the
/// site's files, with the SHA-256 of each. Throws UsageError if the folder has files
/// but is not a site's, and std::system_error if the folder cannot be written to.
void take_site_folder(const std::filesystem::path& folder);

/// Writes the site into a folder that take_site_folder() has marked. Removes an earlier
/// site's files that the new site does not have, unless they were changed. Touches no
/// other files. If a link or a foreign file is in the place of one of the site's files,
/// throws UsageError and writes nothing.
void write_site(const std::filesystem::path& folder, const Site& site);

}  // namespace lockstep::lessons
