#include "src/os/environment.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <unistd.h>

namespace lockstep::os {

std::optional<std::string> variable(const std::string& name) {
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& variables) {
    std::vector<std::string> all;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        bool replaced = false;
        for (const auto& [name, value] : variables)
            replaced |=
                text.starts_with(name) && text.substr(name.size()).starts_with('=');
        if (!replaced) all.emplace_back(text);
    }
    for (const auto& [name, value] : variables)
        all.emplace_back(name).append("=").append(value);
    return all;
}

std::string search_path() {
    return variable("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
}

std::string find_on_path(const std::string& name) {
    std::string rest = search_path();
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find(':'), rest.size());
        std::string file = rest.substr(0, end) + "/" + name;
        if (end > 0 && ::access(file.c_str(), X_OK) == 0) return file;
        rest.erase(0, end + 1);
    }
    return "";
}

std::filesystem::path temporary_place() {
    const std::string where = variable("TMPDIR").value_or("");
    return where.empty() ? "/tmp" : where;
}

std::filesystem::path make_temporary_folder(const std::string& kind) {
    std::string name = (temporary_place() / ("lockstep-" + kind + "XXXXXX")).string();
    if (::mkdtemp(name.data()) == nullptr) {
        const std::string where = variable("TMPDIR").value_or("");
        throw std::system_error(
            errno, std::generic_category(),
            "cannot make a folder for temporary files in " +
                (where.empty() ? "/tmp (TMPDIR can name another folder)"
                               : "TMPDIR, " + where));
    }
    return name;
}

}  // namespace lockstep::os
