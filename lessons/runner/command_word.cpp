#include <algorithm>

#include <fmt/format.h>

#include "lessons/runner/command_line.hpp"
#include "lessons/runner/glossary.hpp"
#include "lessons/runner/reader.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/core/require.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

constexpr const char* kNoBreakSpace = "\u00a0";

std::vector<std::string> names_of(const GlossarySection& section) {
    std::vector<std::string> names;
    for (const GlossaryEntry& entry : section.entries)
        for (const std::string& name : entry.names)
            if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    return names;
}

std::vector<std::string> all_names(const std::vector<GlossarySection>& glossary) {
    std::vector<std::string> names;
    for (const GlossarySection& section : glossary)
        for (const std::string& name : names_of(section))
            names.push_back(name);
    return names;
}

}  // namespace

void declare_word(CommandLine& line) {
    Command& command = line.add(
        "word",
        "Says what a word or a letter of the course means: all-reduce, bubble, S. "
        "Without a word, it lists all words.");
    auto& request = command.asks_for<WordRequest>();
    const std::vector<std::string>& words = line.words();
    const bool named = words.size() > 1 && !words[1].starts_with("-");
    command.rest("WORD", "all-reduce, in flight, S", named,
                 [&request](const std::string&, const std::string& value) {
                     request.word += (request.word.empty() ? "" : " ") + value;
                 });
    command.suggest(all_names(read_glossary()));
}

namespace {

std::string replaced(std::string text, std::string_view from, std::string_view to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
        text.replace(at, from.size(), to);
    return text;
}

/// Returns all words, by section. A line never breaks within a word.
std::string list_of(const std::vector<GlossarySection>& glossary) {
    std::string text;
    for (const GlossarySection& section : glossary) {
        std::vector<std::string> names = names_of(section);
        for (std::string& name : names)
            name = replaced(name, " ", kNoBreakSpace);
        if (!names.empty())
            text += listed(section.title, {fmt::format("{}", fmt::join(names, ", "))});
    }
    return replaced(text, kNoBreakSpace, " ");
}

/// Returns the name and, indented below it, its meaning.
Document document_of(const GlossaryEntry& entry) {
    Document meaning = entry.text;
    if (!entry.where.empty())
        append(std::get<Paragraph>(meaning.back().is).text,
               words_of(" (" + entry.where + ")").front());
    return {{Definition{words_of(fmt::format("{}", fmt::join(entry.names, ", "))),
                        std::move(meaning)}}};
}

}  // namespace

int run(const WordRequest& request) {
    const std::vector<GlossarySection> glossary = read_glossary();
    if (request.word.empty()) {
        print(list_of(glossary));
        return kSuccess;
    }
    const std::vector<GlossaryEntry> found = entries_called(glossary, request.word);
    require(!found.empty(), [&] {
        const std::string hint = did_you_mean(request.word, all_names(glossary));
        return fmt::format(
            "the glossary has no word '{}'{}", printable(request.word),
            hint.empty() ? "; lockstep word lists those that it has" : hint);
    });
    Document meanings;
    for (const GlossaryEntry& entry : found)
        for (Block& block : document_of(entry))
            meanings.push_back(std::move(block));
    print_document(meanings);
    return kSuccess;
}

}  // namespace lockstep::lessons
