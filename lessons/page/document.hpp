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

// The content of a page, as a tree of blocks. It comes from Markdown (markdown.hpp), or
// from a lesson's page with the results of its experiments (fill.hpp). Terminals and
// browsers show it (terminal_text.hpp, html.hpp).

/// A piece of text in one style.
struct Span {
    std::string text;
    bool strong = false;
    bool emphasis = false;
    bool code = false;
    std::string link;  ///< the target; empty without a link

    bool looks_like(const Span& other) const {
        return strong == other.strong && emphasis == other.emphasis &&
               code == other.code && link == other.link;
    }
};

using Words = std::vector<Span>;

/// Returns the text without its styles.
std::string plain(const Words& words);

/// Returns text without a style.
Words words_of(std::string text);

/// Appends a piece; it is joined with the last piece if both have the same style.
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

/// Lines that are shown as they are: code, a formula, a program's output.
struct Listing {
    std::string language;  ///< "cpp", "diff"; often empty
    std::string text;
    std::string place;  ///< of quoted code: "src/parallel/ring.cpp:18"
};

struct List {
    bool numbered = false;
    int first = 1;
    std::vector<Document> items;
};

/// A word, and below it its meaning.
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

/// The content of a picture, which is shown as text or as SVG.
using Drawing = std::variant<Chart, MeshPicture>;
using Draw = std::function<Drawing(const std::string& title)>;

/// A picture is drawn when it is shown, because its title comes from the page.
struct Picture {
    std::shared_ptr<const Draw> draw;
    std::string title;
};

/// A check, as a sentence.
struct Verdict {
    bool passed = true;
    Words sentence;
};

/// A paragraph after a highlighted label: "Right:  6,000 bytes".
struct Labelled {
    enum class Look { strong, good, bad };
    std::string label;
    Words text;
    Look look = Look::strong;
};

/// Checks that need not be read, because all have passed.
struct FoldedChecks {
    std::string summary;  ///< "10 more checks passed."
    std::vector<Words> checks;
};

/// A question that is asked before its answer is shown. prediction.hpp has the right
/// answer, and remarks on wrong answers.
struct Prediction;

struct Question {
    std::shared_ptr<const Prediction> prediction;
};

struct Block {
    std::variant<Heading, Paragraph, Listing, List, Definition, TableBlock, Quotation,
                 Picture, Verdict, Labelled, FoldedChecks, Question>
        is;
    int line = 0;  ///< in the page's file, from 1

    template <typename Kind>
    const Kind* as() const {
        return std::get_if<Kind>(&is);
    }
};

}  // namespace lockstep::lessons
