#include "lessons/runner/help_text.hpp"

#include "src/text/wrap.hpp"

namespace lockstep::lessons {

std::string entry_text(const std::string& name, const std::string& meaning, int width) {
    constexpr int kNames = 22;
    std::string text;
    for (const std::string& line : wrap(meaning, width - kNames - 4))
        text += "  " + pad_right(text.empty() ? name : "", kNames) + "  " + line + "\n";
    return text;
}

std::string help_text(const CommandText& command, int width) {
    std::string usage = "Usage: " + command.name;
    for (const PositionalText& positional : command.positionals)
        usage += " " + positional.name;
    std::string text = usage + " [options]\n\n";
    for (const std::string& line : wrap(command.purpose, width))
        text += line + "\n";
    text += "\n";
    for (const PositionalText& positional : command.positionals)
        text += entry_text(positional.name, positional.meaning, width);
    for (const OptionText& option : command.options) {
        const std::string value = option.value.empty() ? "" : " " + option.value;
        text += entry_text(option.name + value, option.meaning, width);
    }
    return text + entry_text("--help", "this text", width);
}

}  // namespace lockstep::lessons
