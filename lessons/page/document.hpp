#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/chart/chart.hpp"
#include "src/report/mesh_picture.hpp"
#include "src/text/table.hpp"

namespace lockstep::lessons {

// What a page shows, as a tree of blocks. Markdown becomes one (markdown.hpp); a lesson's
// page and what its experiments found become one (fill.hpp); terminals and browsers show
// one (terminal_text.hpp, html.hpp).

/// A piece of text in one look.
struct Span {
    std::string text;
    bool strong = false;
    bool emphasis = false;
    bool code = false;
    std::string link;  ///< where it leads; empty for most

    bool looks_like(const Span& other) const {
        return strong == other.strong && emphasis == other.emphasis &&
               code == other.code && link == other.link;
    }
};

using Words = std::vector<Span>;

/// Returns the text without its looks.
std::string plain(const Words& words);

/// Returns text that has no looks.
Words words_of(std::string text);

/// Appends a piece; it becomes one with the last piece if both look alike.
void append(Words& words, const Span& span);

struct Block;
using Document = std::vector<Block>;

struct Heading {
    int level = 1;
    Words title;
};

struct Paragraph {
    Words text;
};

/// Lines that stay as they are: code, a formula, what a program printed.
struct Listing {
    std::string language;  ///< "cpp", "diff"; empty for most
    std::string text;
    std::string place;  ///< "src/parallel/ring.cpp:18", of quoted code
};

struct List {
    bool numbered = false;
    int first = 1;
    std::vector<Document> items;
};

/// A word, and below it what it means.
struct Definition {
    Words word;
    Document meaning;
};

struct TableBlock {
    std::vector<Words> head;
    std::vector<std::vector<Words>> rows;
};

/// Returns a table of plain cells.
TableBlock table_of(const Table& table);

struct Quotation {
    std::vector<Block> blocks;
};

/// What a picture shows. Its painters draw it as text or as SVG.
using Drawing = std::variant<Chart, MeshPicture>;
using Draw = std::function<Drawing(const std::string& title)>;

/// A drawing is made when it is shown, since its title is the page's.
struct Picture {
    std::shared_ptr<const Draw> draw;
    std::string title;
};

/// A check, said as a sentence.
struct Verdict {
    bool passed = true;
    Words sentence;
};

/// A paragraph behind a word that stands out: "Right:  6,000 bytes".
struct Labelled {
    enum class Look { strong, good, bad };
    std::string label;
    Words text;
    Look look = Look::strong;
};

/// Checks that nobody has to read, since all have passed.
struct FoldedChecks {
    std::string summary;  ///< "And 10 more checks, all true."
    std::vector<Words> checks;
};

/// A question that is asked before its answer is shown; what a right answer is, and what
/// is said of a wrong one, is in prediction.hpp.
struct Prediction;

struct Question {
    std::shared_ptr<const Prediction> prediction;
};

struct Block {
    std::variant<Heading, Paragraph, Listing, List, Definition, TableBlock, Quotation,
                 Picture, Verdict, Labelled, FoldedChecks, Question>
        is;
    int line = 0;  ///< of the page's file, from 1

    template <typename Kind>
    const Kind* as() const {
        return std::get_if<Kind>(&is);
    }
};

}  // namespace lockstep::lessons
