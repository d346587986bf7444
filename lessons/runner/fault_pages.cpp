#include "lessons/runner/fault_pages.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include "lessons/page/markdown.hpp"
#include "lessons/runner/pages.hpp"

namespace lockstep::lessons {

namespace {

/// Replaces the first number in a text ("Line 16:") by "{}", and returns the number.
std::string take_number(std::string& text) {
    const auto is_digit = [](char letter) {
        return std::isdigit(static_cast<unsigned char>(letter)) != 0;
    };
    const auto begin = std::ranges::find_if(text, is_digit);
    const auto end = std::find_if_not(begin, text.end(), is_digit);
    std::string number(begin, end);
    if (!number.empty()) text.replace(begin, end, "{}");
    return number;
}

/// The file lessons/faults/zh.md: a table with the sentences that are on all pages and,
/// for each page, "## F16: title", its first paragraphs, and the paragraphs under each
/// "### heading".
struct Translation {
    explicit Translation(Document blocks);

    /// Returns the translation of a sentence or heading that is on all pages; none if it
    /// is not translated.
    std::optional<std::string> sentence(std::string text) const;
    /// Returns a page's translated title; none if it is not translated.
    std::optional<std::string> title(const std::string& id) const;
    /// Returns the translated paragraphs under a heading; null if there are none.
    const Document* prose_under(const std::string& id, const Block& block) const;

    std::map<std::string, std::string> sentences;
    std::map<std::string, std::string> titles;  ///< "F16: title", by "F16"
    std::map<std::pair<std::string, std::string>, Document> prose;  ///< by id and heading
};

Translation::Translation(Document blocks) {
    std::string id;
    std::string section;
    for (Block& block : blocks) {
        const auto* heading = block.as<Heading>();
        if (const auto* table = block.as<TableBlock>()) {
            for (const std::vector<Words>& row : table->rows)
                sentences[plain(row.front())] = plain(row.back());
        } else if (!heading) {
            prose[{id, section}].push_back(std::move(block));
        } else if (heading->level == 2) {
            const std::string title = plain(heading->title);
            id = title.substr(0, title.find(':'));
            titles[id] = title;
            section.clear();
        } else {
            section = plain(heading->title);
        }
    }
}

std::optional<std::string> Translation::sentence(std::string text) const {
    const std::string number = take_number(text);
    const auto found = sentences.find(text);
    if (found == sentences.end()) return std::nullopt;
    std::string said = found->second;
    if (const std::size_t place = said.find("{}"); place != said.npos)
        said.replace(place, 2, number);
    return said;
}

std::optional<std::string> Translation::title(const std::string& id) const {
    const auto found = titles.find(id);
    return found == titles.end() ? std::nullopt : std::optional(found->second);
}

const Document* Translation::prose_under(const std::string& id,
                                         const Block& block) const {
    const auto* heading = block.as<Heading>();
    if (!heading) return nullptr;
    const auto found = prose.find({id, heading->level == 1 ? "" : plain(heading->title)});
    return found == prose.end() ? nullptr : &found->second;
}

/// Replaces all of `words` by one text, in the style of the first word.
void put(Words& words, std::string text) {
    words.resize(1);
    words.front().text = std::move(text);
}

/// Translates the sentences that all pages have, and a page's title. Returns whether the
/// block was one of these.
bool translate(Block& block, const std::string& id, const Translation& translation) {
    auto* heading = std::get_if<Heading>(&block.is);
    auto* paragraph = std::get_if<Paragraph>(&block.is);
    if (!heading && !paragraph) return false;
    Words& words = heading ? heading->title : paragraph->text;
    const bool is_title = heading && heading->level == 1;
    std::optional<std::string> said =
        is_title ? translation.title(id) : translation.sentence(plain(words));
    if (said) put(words, std::move(*said));
    return said.has_value();
}

/// Replaces a page's own paragraphs under a heading if there is a translation. Programs
/// and output are not translated.
Document translated(Document page, const std::string& id,
                    const Translation& translation) {
    Document shown;
    bool replaces = false;
    for (Block& block : page) {
        const bool done = translate(block, id, translation);
        if (replaces && !done && block.as<Paragraph>()) continue;
        const Document* prose = translation.prose_under(id, block);
        replaces = prose != nullptr;
        shown.push_back(std::move(block));
        if (prose) shown.insert(shown.end(), prose->begin(), prose->end());
    }
    return shown;
}

}  // namespace

Document fault_page(const std::string& id, Language language) {
    const std::string file = "faults/" + id;
    Document page = read_markdown(text_called(file + ".md"));
    if (language == Language::english || page.empty()) return page;
    Document whole = read_markdown(text_called(file + ".zh.md"));
    if (!whole.empty()) return whole;
    return translated(std::move(page), id,
                      Translation(read_markdown(text_called("faults/zh.md"))));
}

}  // namespace lockstep::lessons
