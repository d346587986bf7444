#include "lessons/page/document.hpp"

namespace lockstep::lessons {

std::string plain(const Words& words) {
    std::string text;
    for (const Span& span : words)
        text += span.text;
    return text;
}

Words words_of(std::string text) {
    Span span;
    span.text = std::move(text);
    return {span};
}

void append(Words& words, const Span& span) {
    if (span.text.empty()) return;
    if (!words.empty() && words.back().looks_like(span))
        words.back().text += span.text;
    else
        words.push_back(span);
}

TableBlock table_of(const Table& table) {
    TableBlock block;
    for (const std::string& cell : table.head)
        block.head.push_back(words_of(cell));
    for (const auto& row : table.rows) {
        block.rows.emplace_back();
        for (const std::string& cell : row)
            block.rows.back().push_back(words_of(cell));
    }
    return block;
}

}  // namespace lockstep::lessons
