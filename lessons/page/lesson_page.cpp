#include "lessons/page/lesson_page.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lessons/page/markdown.hpp"
#include "src/core/require.hpp"
#include "src/text/numbers.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::string_view kRule = "---\n";

/// Removes the lines "key: value" between two "---" at the beginning of the text, and
/// returns the number of removed lines.
int take_facts(std::string_view& text, std::map<std::string, std::string>& facts) {
    if (!text.starts_with(kRule)) return 0;
    int lines = 1;
    text.remove_prefix(kRule.size());
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        ++lines;
        if (line == "---") break;
        const std::size_t colon = std::min(line.find(':'), line.size());
        facts[std::string(trimmed(line.substr(0, colon)))] =
            trimmed(line.substr(std::min(colon + 1, line.size())));
    }
    return lines;
}

/// Removes the name from "A step {#name}" and returns it.
std::string take_name(std::string& title) {
    const std::size_t open = title.rfind("{#");
    if (open == std::string::npos || !title.ends_with('}')) return "";
    std::string name = title.substr(open + 2, title.size() - open - 3);
    title = trimmed(title.substr(0, open));
    return name;
}

void shift_lines(Document& blocks, int lines) {
    for (Block& block : blocks)
        block.line += lines;
}

}  // namespace

LessonPage::LessonPage(std::string file, std::string_view text) : file_(std::move(file)) {
    const int above = take_facts(text, facts_);
    Document blocks = read_markdown(text);
    shift_lines(blocks, above);
    for (Block& block : blocks) {
        const auto* heading = block.as<Heading>();
        if (heading && heading->level == 1) {
            title_ = plain(heading->title);
        } else if (heading && heading->level == 2) {
            PageSection section;
            section.title = plain(heading->title);
            section.name = take_name(section.title);
            section.line = block.line;
            sections_.push_back(std::move(section));
        } else if (!sections_.empty()) {
            sections_.back().text.push_back(std::move(block));
        } else if (const auto* paragraph = block.as<Paragraph>()) {
            question_ += (question_.empty() ? "" : "\n\n") + plain(paragraph->text);
        }
    }
    require(
        !title_.empty() && !question_.empty() && !sections_.empty(),
        "{}: a lesson's page has a title (# …), a question, and steps (## … {{#name}})",
        file_);
    for (const PageSection& section : sections_)
        collect(section.text);
}

std::string LessonPage::place(int line) const {
    return fmt::format("{}:{}", file_, line);
}

std::string LessonPage::fact(const std::string& key) const {
    const auto found = facts_.find(key);
    return found == facts_.end() ? "" : found->second;
}

std::vector<const PageSection*> LessonPage::steps() const {
    std::vector<const PageSection*> steps;
    for (const PageSection& section : sections_)
        if (section.is_step()) steps.push_back(&section);
    return steps;
}

std::string LessonPage::check_label(const std::string& name) const {
    const auto found = labels_.find(name);
    return found == labels_.end() ? "" : found->second;
}

std::string LessonPage::written(const std::string& word) const {
    const auto found = words_.find(word);
    return found == words_.end() ? word : found->second;
}

Language LessonPage::language() const {
    return file_.ends_with(".zh.md") ? Language::chinese : Language::english;
}

void LessonPage::collect(const Document& blocks) {
    for (const Block& block : blocks) {
        const std::optional<Directive> directive = directive_of(block);
        if (!directive || directive->label.empty()) continue;
        if (directive->word == "check") labels_[directive->name] = directive->label;
        if (directive->word == "word") words_[directive->name] = directive->label;
        if (directive->word == "title") titles_[directive->name] = directive->label;
    }
}

std::string facts_text(const LessonPage& page, const std::string& after,
                       const std::string& assignment) {
    const auto say = [&](const char* sentence, const std::string& value) {
        if (value.empty() || value == "none") return std::string();
        return fmt::format(fmt::runtime(said(page.language(), sentence)), value);
    };
    return joined(page.language(),
                  {say("About {} minutes.", page.fact("minutes")),
                   say("After: {}.", after), say("Assignment: {}.", assignment)});
}

std::optional<Directive> directive_of(const Block& block) {
    const auto* paragraph = block.as<Paragraph>();
    if (!paragraph) return std::nullopt;
    const std::string text = plain(paragraph->text);
    std::size_t end = text.find("}}");
    if (!text.starts_with("{{") || end == std::string::npos) return std::nullopt;
    while (text.substr(end + 2).starts_with('}'))  // the label may end with "{value}"
        ++end;

    Directive directive;
    std::string inside = text.substr(2, end - 2);
    const std::size_t colon = inside.find(": ");
    if (colon != std::string::npos) {
        directive.label = trimmed(inside.substr(colon + 2));
        inside.resize(colon);
    }
    const std::size_t space = std::min(inside.find(' '), inside.size());
    directive.word = inside.substr(0, space);
    directive.name = trimmed(inside.substr(space));

    // Removes the directive from the paragraph; the text after it keeps its styles.
    std::size_t skip = end + 2;
    for (Span span : paragraph->text) {
        const std::size_t here = std::min(skip, span.text.size());
        skip -= here;
        span.text.erase(0, here);
        append(directive.rest, span);
    }
    if (!directive.rest.empty()) {
        std::string& first = directive.rest.front().text;
        first.erase(0, std::min(first.find_first_not_of(' '), first.size()));
    }
    return directive;
}

}  // namespace lockstep::lessons
