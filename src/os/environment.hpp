#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::os {

/// The value of an environment variable, if it is set.
std::optional<std::string> variable(const std::string& name);

/// Returns this process's environment with some variables set: "NAME=value" each.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& variables);

/// Returns the folders in which programs are looked for, with ':' between: the
/// environment's PATH, or the usual ones if it has none.
std::string search_path();

/// Returns the file that a name on the PATH stands for; empty if there is none.
std::string find_on_path(const std::string& name);

/// Returns where TMPDIR says that temporary files go, or /tmp.
std::filesystem::path temporary_place();

/// Makes an empty folder of its own there, "lockstep-…" with `kind` behind it, and
/// returns its path. Throws std::system_error with a sentence that names TMPDIR if that
/// cannot be.
std::filesystem::path make_temporary_folder(const std::string& kind = "");

}  // namespace lockstep::os
