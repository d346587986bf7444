#include "src/report/csv_cells.hpp"

#include <algorithm>
#include <utility>

#include "src/core/require.hpp"
#include "src/text/numbers.hpp"

namespace lockstep {

namespace {

constexpr std::string_view kBlank = " \r\n";

std::string_view without_blank_end(std::string_view text) {
    return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

/// Returns the separator: see CsvReader.
char separator_of(std::string_view text) {
    std::string outside;
    text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
    bool quoted = false;
    int brackets = 0;
    for (const char c : text) {
        if (c == '"') quoted = !quoted;
        if (c == '\n' && !quoted) break;
        if (quoted) continue;
        brackets += (c == '(') - (c == ')');
        if (brackets <= 0) outside += c;
    }
    for (const char separator : {'\t', ';'})
        if (outside.find(separator) != std::string::npos) return separator;
    return ',';
}

}  // namespace

CsvReader::CsvReader(std::string_view text, std::string name)
    : text_(without_blank_end(text)),
      name_(std::move(name)),
      separator_(separator_of(text_)) {}

bool CsvReader::next(CsvRow& row) {
    if (at_ >= text_.size()) return false;
    row.line = line_;
    row.cells.clear();
    do
        row.cells.push_back(cell(row.cells.size() + 1));
    while (take(separator_));
    take('\r');
    take('\n');
    ++line_;
    return true;
}

std::string CsvReader::cell(std::size_t column) {
    while (at_ < text_.size() && text_[at_] == ' ')
        ++at_;
    if (at_ < text_.size() && text_[at_] == '"') return quoted(column);
    const std::size_t end = end_of_cell();
    const std::string_view found = trimmed(text_.substr(at_, end - at_));
    at_ = end;
    return std::string(found);
}

std::string CsvReader::quoted(std::size_t column) {
    const int line = line_;
    std::string found;
    for (++at_; at_ < text_.size(); ++at_) {
        if (text_[at_] == '\n') ++line_;
        if (text_[at_] == '"' && text_.substr(at_ + 1, 1) != "\"") break;
        if (text_[at_] == '"') ++at_;
        found += text_[at_];
    }
    require(take('"'), "{}, row {}, column {}: the quote is not closed", name_, line,
            column);
    const std::size_t end = end_of_cell();
    require(trimmed(text_.substr(at_, end - at_)).empty(),
            "{}, row {}, column {}: text follows a closing quote", name_, line, column);
    at_ = end;
    return std::string(trimmed(found));
}

std::size_t CsvReader::end_of_cell() const {
    std::size_t end = at_;
    while (end < text_.size() && text_[end] != separator_ && text_[end] != '\n')
        ++end;
    if (end > at_ && text_[end - 1] == '\r') --end;
    return end;
}

bool CsvReader::take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
}

}  // namespace lockstep
