#include "lessons/grader/student_compiler.hpp"

#include <cstdlib>
#include <sstream>
#include <unistd.h>

#include "src/core/require.hpp"

namespace lockstep::lessons {

namespace {

bool on_path(const std::string& name) {
    const char* const path = std::getenv("PATH");
    std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
    for (std::string folder; std::getline(folders, folder, ':');)
        if (::access((folder + "/" + name).c_str(), X_OK) == 0) return true;
    return false;
}

}  // namespace

std::vector<std::string> student_compiler() {
    if (const char* const asked = std::getenv("CXX")) {
        std::istringstream text(asked);
        std::vector<std::string> words;
        for (std::string word; text >> word;)
            words.push_back(word);
        if (!words.empty()) return words;
    }
    for (const char* name : {"g++", "c++", "clang++"})
        if (on_path(name)) return {name};
    throw MissingError("there is no C++ compiler on the PATH; install g++");
}

}  // namespace lockstep::lessons
