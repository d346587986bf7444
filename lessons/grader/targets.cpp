#include "lessons/grader/targets.hpp"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep::lessons {

std::string Targets::json() const {
    const nlohmann::json document{
        {"assignment", slug}, {"seed", seed}, {"targets", values}};
    return document.dump(2) + "\n";
}

Targets Targets::read(const std::string& text, const std::string& name) {
    try {
        const nlohmann::json document = nlohmann::json::parse(text);
        return {document.at("assignment").get<std::string>(),
                document.at("seed").get<std::uint64_t>(),
                document.at("targets").get<std::map<std::string, std::int64_t>>()};
    } catch (const nlohmann::json::exception& error) {
        throw UsageError(
            fmt::format("{}: expected the document that 'lockstep assignment targets' "
                        "writes ({})",
                        name, error.what()));
    }
}

}  // namespace lockstep::lessons
