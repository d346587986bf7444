#include "lessons/page/terminal_text.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lessons/page/code_look.hpp"
#include "lessons/page/prediction.hpp"
#include "src/chart/text.hpp"
#include "src/text/table.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace {

using Lines = std::vector<std::string>;

constexpr int kNarrowestChart = 40;
constexpr int kWidestText = 100;  // longer lines are hard to read

std::string dressed(std::string_view text, const char* code, const TextLook& look) {
    if (!look.colour || text.empty() || !*code) return std::string(text);
    return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

const char* code_of(const Span& span) {
    return span.strong ? "1" : span.code ? "36" : span.emphasis ? "3" : "";
}

bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t';
}

/// Returns words wrapped to lines, each piece in its style.
Lines wrapped_words(const Words& words, int width, const TextLook& look) {
    const std::string all = plain(words);
    std::vector<const char*> codes;  // the style's code for each byte of `all`
    for (const Span& span : words)
        codes.insert(codes.end(), span.text.size(), code_of(span));
    std::size_t at = 0;
    const auto skip_spaces = [&] {
        while (at < all.size() && is_space(all[at]))
            ++at;
    };
    Lines lines;
    for (const std::string& line : wrap(all, width)) {
        std::string dressed_line, piece;
        const char* code = "";
        skip_spaces();
        for (const char c : line) {
            const char* here = at < codes.size() ? codes[at] : "";
            if (std::string_view(here) != code) {
                dressed_line += dressed(piece, code, look);
                piece.clear();
                code = here;
            }
            piece += c;
            if (is_space(c))
                skip_spaces();
            else
                ++at;
        }
        lines.push_back(dressed_line + dressed(piece, code, look));
    }
    return lines;
}

int text_width(const TextLook& look) {
    return std::min(look.width, kWidestText);
}

Lines indented(const Lines& lines, const std::string& first, const std::string& rest) {
    Lines all;
    for (const std::string& line : lines)
        all.push_back(line.empty() ? "" : (all.empty() ? first : rest) + line);
    return all;
}

TextLook narrower(TextLook look, int columns) {
    look.width = std::max(look.width - columns, 10);
    return look;
}

const char* code_of(CodePiece::Kind kind) {
    switch (kind) {
        case CodePiece::Kind::keyword:
            return "34";
        case CodePiece::Kind::comment:
            return "2;3";
        case CodePiece::Kind::literal:
        case CodePiece::Kind::added:
            return "32";
        case CodePiece::Kind::removed:
            return "31";
        case CodePiece::Kind::plain:
            break;
    }
    return "";
}

Lines lines_of(const Listing& listing, const TextLook& look) {
    constexpr int kIndent = 2;
    Lines lines;
    if (!listing.place.empty())
        for (const std::string& line : fold(listing.place, look.width))
            lines.push_back(dressed(line, "2", look));
    const Lines all = split_lines(listing.text);
    const bool is_code = listing.language == "cpp";
    // A program's output may be as wide as the window.
    const bool has_room = std::ranges::all_of(all, [&](const std::string& line) {
        return columns_of(line) <= look.width - kIndent;
    });
    const int indent = is_code || has_room ? kIndent : 0;
    Lines folded;
    if (is_code)
        folded = fold_code(listing.text, look.width - indent);
    else
        for (const std::string& line : all)
            for (std::string& part : fold(line, look.width))
                folded.push_back(std::move(part));
    for (const std::string& line : folded) {
        std::string dressed_line;
        for (const CodePiece& piece : code_pieces(line, listing.language))
            dressed_line += dressed(piece.text, code_of(piece.kind), look);
        lines.push_back(line.empty() ? "" : pad_right("", indent) + dressed_line);
    }
    return lines;
}

Lines lines_of(const Heading& heading, const TextLook& look) {
    Lines lines = wrap(plain(heading.title), text_width(look));
    int width = 0;
    for (const std::string& line : lines)
        width = std::max(width, columns_of(line));
    if (heading.level < 3) {
        lines.emplace_back();
        for (int i = 0; i < width; ++i)
            lines.back() += "─";
    }
    for (std::string& line : lines)
        line = bold(line, look);
    return lines;
}

Lines lines_of(const List& list, const TextLook& look) {
    Lines lines;
    int number = list.first;
    for (const Document& item : list.items) {
        const std::string mark = list.numbered ? fmt::format("{}. ", number++) : "- ";
        const auto columns = static_cast<int>(mark.size());
        for (std::string& line : indented(lines_of(item, narrower(look, columns)), mark,
                                          pad_right("", columns)))
            lines.push_back(std::move(line));
    }
    return lines;
}

Lines lines_of(const Definition& definition, const TextLook& look) {
    constexpr int kIndent = 4;
    Lines lines;
    for (const std::string& line : wrap(plain(definition.word), text_width(look)))
        lines.push_back(bold(line, look));
    const std::string space = pad_right("", kIndent);
    for (std::string& line :
         indented(lines_of(definition.meaning, narrower(look, kIndent)), space, space))
        lines.push_back(std::move(line));
    return lines;
}

Lines lines_of(const TableBlock& block, const TextLook& look) {
    Table table;
    for (const Words& cell : block.head)
        table.head.push_back(plain(cell));
    for (const std::vector<Words>& row : block.rows) {
        table.rows.emplace_back();
        for (const Words& cell : row)
            table.rows.back().push_back(plain(cell));
    }
    const TableText text = table_text(table, text_width(look));
    Lines lines;
    for (const std::string& line : text.head)
        lines.push_back(bold(line, look));
    lines.insert(lines.end(), text.body.begin(), text.body.end());
    return lines;
}

Lines lines_of(const Picture& picture, const TextLook& look) {
    const TextStyle style{std::max(look.width, kNarrowestChart), look.colour, ""};
    const Drawing drawing = (*picture.draw)(picture.title);
    const auto* chart = std::get_if<Chart>(&drawing);
    Lines lines = split_lines(chart ? chart_text(*chart, style)
                                    : mesh_text(std::get<MeshPicture>(drawing), style));
    while (!lines.empty() && lines.back().empty())
        lines.pop_back();
    return lines;
}

Lines lines_of(const FoldedChecks& folded, const TextLook& look) {
    Lines lines;
    for (const std::string& line : wrap(folded.summary, text_width(look)))
        lines.push_back(dressed(line, "2", look));
    return lines;
}

Lines lines_of(const Labelled& labelled, const TextLook& look) {
    const int indent = columns_of(labelled.label) + 2;
    const char* code = labelled.look == Labelled::Look::strong ? "1"
                       : labelled.look == Labelled::Look::good ? "32"
                                                               : "1;31";
    return indented(wrapped_words(labelled.text, text_width(look) - indent, look),
                    dressed(labelled.label, code, look) + "  ", pad_right("", indent));
}

Lines lines_of(const Verdict& verdict, const TextLook& look) {
    const std::string ok = said(look.language, "ok");
    const std::string failed = said(look.language, "FAILED");
    const int width = std::max(columns_of(ok), columns_of(failed));
    return lines_of(
        Labelled{pad_right(verdict.passed ? ok : failed, width), verdict.sentence,
                 verdict.passed ? Labelled::Look::good : Labelled::Look::bad},
        look);
}

Lines lines_of(const Question& question, const TextLook& look) {
    const Prediction& prediction = *question.prediction;
    Lines lines;
    for (std::size_t i = 0; i < prediction.question.size(); ++i) {
        const Block& block = prediction.question[i];
        const auto* paragraph = block.as<Paragraph>();
        Lines part =
            i == 0 && paragraph
                ? lines_of(Labelled{said(look.language, "Predict:"), paragraph->text},
                           look)
                : lines_of(block, look);
        if (i > 0) lines.emplace_back();
        lines.insert(lines.end(), part.begin(), part.end());
    }
    for (std::size_t i = 0; i < prediction.choices.size(); ++i) {
        const std::string mark = fmt::format("  {}  ", letter_of(i));
        if (i == 0) lines.emplace_back();
        for (std::string& line :
             indented(lines_of(prediction.choices[i].text,
                               narrower(look, static_cast<int>(mark.size()))),
                      mark, pad_right("", static_cast<int>(mark.size()))))
            lines.push_back(std::move(line));
    }
    return lines;
}

}  // namespace

std::string bold(const std::string& text, const TextLook& look) {
    return dressed(text, "1", look);
}

std::vector<std::string> lines_of(const Block& block, const TextLook& look) {
    if (const auto* paragraph = block.as<Paragraph>())
        return wrapped_words(paragraph->text, text_width(look), look);
    if (const auto* quotation = block.as<Quotation>())
        return indented(lines_of(quotation->blocks, narrower(look, 2)), "│ ", "│ ");
    if (const auto* heading = block.as<Heading>()) return lines_of(*heading, look);
    if (const auto* listing = block.as<Listing>()) return lines_of(*listing, look);
    if (const auto* list = block.as<List>()) return lines_of(*list, look);
    if (const auto* word = block.as<Definition>()) return lines_of(*word, look);
    if (const auto* table = block.as<TableBlock>()) return lines_of(*table, look);
    if (const auto* picture = block.as<Picture>()) return lines_of(*picture, look);
    if (const auto* verdict = block.as<Verdict>()) return lines_of(*verdict, look);
    if (const auto* labelled = block.as<Labelled>()) return lines_of(*labelled, look);
    if (const auto* folded = block.as<FoldedChecks>()) return lines_of(*folded, look);
    if (const auto* question = block.as<Question>()) return lines_of(*question, look);
    return {};
}

bool stand_apart(const Block& block, const Block& next) {
    if (block.as<Definition>()) return false;
    if (block.as<Verdict>()) return !next.as<Verdict>() && !next.as<FoldedChecks>();
    return !((block.as<Question>() || block.as<Labelled>()) && next.as<Labelled>());
}

std::vector<std::string> lines_of(const Document& blocks, const TextLook& look) {
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (i > 0 && stand_apart(blocks[i - 1], blocks[i])) lines.emplace_back();
        for (std::string& line : lines_of(blocks[i], look))
            lines.push_back(std::move(line));
    }
    return lines;
}

}  // namespace lockstep::lessons
