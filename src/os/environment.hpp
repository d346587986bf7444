#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::os {

/// The value of an environment variable, if it is set.
std::optional<std::string> variable(const std::string& name);

/// Returns this process's environment with some variables set, as texts "NAME=value".
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& variables);

/// Returns the folders that are searched for programs, with ':' between them: the
/// environment's PATH, or the usual folders if it has none.
std::string search_path();

/// Searches the PATH for a program. Returns the path of its file; empty if there is none.
std::string find_on_path(const std::string& name);

/// Returns the folder for temporary files: TMPDIR, or /tmp.
std::filesystem::path temporary_place();

/// Makes a new, empty folder in temporary_place(), and returns its path. Its name is
/// "lockstep-", then `kind` and some letters. If the folder cannot be made, throws
/// std::system_error with a sentence that names TMPDIR.
std::filesystem::path make_temporary_folder(const std::string& kind = "");

}  // namespace lockstep::os
