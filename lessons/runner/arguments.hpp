#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::lessons {

/// An option, as help shows it.
struct OptionText {
    std::string name;   ///< "--ranks"
    std::string value;  ///< "N"; empty for a flag
    std::string meaning;
    bool repeats = false;
};

struct PositionalText {
    std::string name;  ///< "SLUG"
    std::string meaning;
};

/// What a command takes.
struct CommandText {
    std::string name;  ///< "lockstep lesson"
    std::string purpose;
    std::vector<PositionalText> positionals;
    std::vector<OptionText> options;
};

/// A command line taken apart; values are not looked at yet.
struct Arguments {
    std::vector<std::string> positionals;
    std::map<std::string, std::vector<std::string>>
        options;        ///< a flag's value is "true"
    bool help = false;  ///< --help is among them

    bool has(const std::string& option) const { return options.contains(option); }
    std::optional<std::string> value(const std::string& option) const;
    std::vector<std::string> values(const std::string& option) const;
};

/// Throws UsageError with one sentence for an unknown option (naming the nearest one), an
/// option without its value or given twice, a missing positional or one too many.
Arguments take_apart(const CommandText& command,
                     const std::vector<std::string>& arguments);

}  // namespace lockstep::lessons
