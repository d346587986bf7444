#include "lessons/page/html.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "lessons/page/code_look.hpp"
#include "lessons/page/lesson_page.hpp"
#include "lessons/page/prediction.hpp"
#include "src/chart/svg.hpp"
#include "src/text/json.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace {

std::string element(const char* tag, const std::string& inner) {
    return fmt::format("<{0}>{1}</{0}>\n", tag, inner);
}

/// Returns a span's target. The command `lockstep fault F16` links to a page, too.
std::string link_of(const Span& span) {
    constexpr std::string_view kCommand = "lockstep fault F";
    if (!span.link.empty() || !span.code || !span.text.starts_with(kCommand))
        return span.link;
    return span.text.substr(kCommand.size() - 1) + ".md";
}

std::string html_of(const Span& span, const HtmlLook& look) {
    std::string html = xml_escaped(span.text);
    if (span.code) html = "<code>" + html + "</code>";
    if (span.emphasis) html = "<em>" + html + "</em>";
    if (span.strong) html = "<strong>" + html + "</strong>";
    const std::string link = link_of(span);
    if (link.empty()) return html;
    const std::string place = look.link_to ? look.link_to(link) : link;
    return place.empty() ? html
                         : fmt::format("<a href=\"{}\">{}</a>", xml_escaped(place), html);
}

const char* class_of(CodePiece::Kind kind) {
    constexpr std::array kClasses{"",        "keyword", "comment",
                                  "literal", "added",   "removed"};
    return kClasses[static_cast<std::size_t>(kind)];
}

std::string html_of(const Listing& listing) {
    std::string code;
    for (const std::string& line : split_lines(listing.text)) {
        for (const CodePiece& piece : code_pieces(line, listing.language)) {
            const std::string text = xml_escaped(piece.text);
            code += piece.kind == CodePiece::Kind::plain
                        ? text
                        : fmt::format("<span class=\"{}\">{}</span>",
                                      class_of(piece.kind), text);
        }
        code += '\n';
    }
    const std::string place =
        listing.place.empty()
            ? ""
            : fmt::format("<figcaption>{}</figcaption>\n", xml_escaped(listing.place));
    // In a narrow window code scrolls; with a tabindex, the keyboard can scroll it, too.
    return fmt::format(
        "<figure class=\"listing\">{}<pre "
        "tabindex=\"0\"><code>{}</code></pre></figure>\n",
        place, code);
}

std::string html_of(const List& list, const HtmlLook& look) {
    std::string items;
    for (const Document& item : list.items) {
        const Paragraph* only = item.size() == 1 ? item.front().as<Paragraph>() : nullptr;
        items += element("li", only ? html_of(only->text, look) : html_of(item, look));
    }
    if (!list.numbered) return element("ul", items);
    return fmt::format("<ol start=\"{}\">{}</ol>\n", list.first, items);
}

/// Returns whether a cell is a number; numbers are aligned.
bool is_number(const Words& cell) {
    const std::string text = plain(cell);
    return !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) != 0 ||
                             (text[0] == '-' && text.size() > 1));
}

std::string html_of(const TableBlock& table, const HtmlLook& look) {
    std::vector<bool> numbers(table.head.size(), !table.rows.empty());
    for (const auto& row : table.rows)
        for (std::size_t c = 0; c < std::min(row.size(), numbers.size()); ++c)
            numbers[c] = numbers[c] && is_number(row[c]);
    const auto line = [&](const std::vector<Words>& cells, const char* tag) {
        std::string html;
        for (std::size_t c = 0; c < cells.size(); ++c)
            html +=
                fmt::format("<{0}{1}>{2}</{0}>", tag,
                            c < numbers.size() && numbers[c] ? " class=\"number\"" : "",
                            html_of(cells[c], look));
        return element("tr", html);
    };
    std::string rows;
    for (const auto& row : table.rows)
        rows += line(row, "td");
    return fmt::format(
        "<div class=\"table\" tabindex=\"0\"><table>\n<thead>{}</thead>\n"
        "<tbody>{}</tbody></table></div>\n",
        line(table.head, "th"), rows);
}

std::string html_of(const Picture& picture) {
    const Drawing drawing = (*picture.draw)(picture.title);
    const auto* chart = std::get_if<Chart>(&drawing);
    const SvgPart part =
        chart ? chart_part(*chart) : mesh_part(std::get<MeshPicture>(drawing));
    return fmt::format(
        "<figure class=\"picture\"><svg viewBox=\"0 0 {0} {1}\" style=\"--width:{0}px\" "
        "role=\"img\" aria-label=\"{2}\">\n{3}</svg></figure>\n",
        svg_number(part.width), svg_number(part.height), xml_escaped(picture.title),
        part.svg);
}

std::string html_of(const Labelled& labelled, const HtmlLook& look) {
    constexpr std::array kClasses{"strong", "good", "bad"};
    return fmt::format("<p class=\"labelled\"><b class=\"{}\">{}</b> {}</p>\n",
                       kClasses[static_cast<std::size_t>(labelled.look)],
                       xml_escaped(labelled.label), html_of(labelled.text, look));
}

std::string html_of(const FoldedChecks& folded, const HtmlLook& look) {
    std::string checks;
    for (const Words& check : folded.checks)
        checks += element("li", html_of(check, look));
    return fmt::format(
        "<details class=\"checks\"><summary>{}</summary><ul>\n{}</ul>"
        "</details>\n",
        xml_escaped(folded.summary), checks);
}

/// Returns the data with which a browser judges an answer; browser.cpp reads them.
Json json_of(const Prediction& prediction, const HtmlLook& look) {
    Json hints = Json::array();
    for (const Hint& hint : prediction.hints)
        hints.push_back({{"wrong", hint.wrong},
                         {"choice", hint.choice},
                         {"html", html_of(hint.text, look)}});
    Json choices = Json::array();
    for (const Choice& choice : prediction.choices)
        choices.push_back(choice.key);
    return {{"value", prediction.answer.value},
            {"unit", std::string(name_of(prediction.answer.unit))},
            {"digits", prediction.answer.digits},
            {"choices", std::move(choices)},
            {"right", prediction.right_choice},
            {"hints", std::move(hints)}};
}

std::string fields_of(const Prediction& prediction, const HtmlLook& look) {
    if (!prediction.has_choices()) {
        const std::string unit = unit_asked_for(prediction.answer, look.language);
        std::string label = said(look.language, "Your answer");
        if (!unit.empty())
            label += fmt::format(fmt::runtime(said(look.language, ", in {}")), unit);
        return fmt::format(
            "<label>{} <input name=\"answer\" autocomplete=\"off\" "
            "spellcheck=\"false\"></label>\n",
            xml_escaped(label));
    }
    std::string choices;
    for (std::size_t i = 0; i < prediction.choices.size(); ++i)
        choices += fmt::format(
            "<label class=\"choice\"><input type=\"radio\" "
            "name=\"answer\" value=\"{0}\"> <b>{0}</b> <div>{1}</div></label>\n",
            letter_of(i), html_of(prediction.choices[i].text, look));
    return choices;
}

std::string html_of(const Question& question, const HtmlLook& look) {
    const Prediction& prediction = *question.prediction;
    Document asked = prediction.question;
    if (!asked.empty() && asked.front().as<Paragraph>())
        asked.front() = {Labelled{said(look.language, "Predict:"),
                                  asked.front().as<Paragraph>()->text},
                         asked.front().line};
    return fmt::format(
        "<form class=\"question\" id=\"predict-{}\" data-prediction=\"{}\" "
        "data-figure=\"{}\">\n{}{}<div class=\"buttons\"><button>{}</button> "
        "<button type=\"button\" class=\"pass\">{}</button></div>\n"
        "<p class=\"advice\" aria-live=\"polite\"></p></form>\n"
        "<div class=\"outcome\">\n<p class=\"labelled\"><b class=\"strong\">{}</b> "
        "{}</p>\n"
        "{}</div>\n",
        xml_escaped(prediction.name), xml_escaped(json_of(prediction, look).dump(0)),
        xml_escaped(answer_text(prediction)), html_of(asked, look),
        fields_of(prediction, look), said(look.language, "Answer"),
        said(look.language, "Skip"), said(look.language, "Answer:"),
        xml_escaped(answer_text(prediction, look.language)),
        html_of(prediction.working, look));
}

std::string html_of(const Heading& heading, const HtmlLook& look) {
    return fmt::format("<h{0} id=\"{1}\">{2}</h{0}>\n", heading.level,
                       xml_escaped(anchor_of(plain(heading.title))),
                       html_of(heading.title, look));
}

std::string html_of(const Verdict& verdict, const HtmlLook& look) {
    return html_of(
        Labelled{said(look.language, verdict.passed ? "ok" : "FAILED"), verdict.sentence,
                 verdict.passed ? Labelled::Look::good : Labelled::Look::bad},
        look);
}

/// Returns an answer that is folded until the reader opens it.
std::string html_of_answer(const Words& answer, const HtmlLook& look) {
    return fmt::format("<details><summary>{}</summary>{}</details>\n",
                       said(look.language, "The answer"), html_of(answer, look));
}

std::string html_of(const Block& block, const HtmlLook& look) {
    const std::optional<Directive> directive = directive_of(block);
    if (directive && directive->word == "answer")
        return html_of_answer(directive->rest, look);
    if (const auto* paragraph = block.as<Paragraph>())
        return element("p", html_of(paragraph->text, look));
    if (const auto* quotation = block.as<Quotation>())
        return element("blockquote", html_of(quotation->blocks, look));
    if (const auto* word = block.as<Definition>())
        return fmt::format("<dl><dt id=\"{}\">{}</dt><dd>{}</dd></dl>\n",
                           xml_escaped(anchor_of(plain(word->word))),
                           html_of(word->word, look), html_of(word->meaning, look));
    if (const auto* heading = block.as<Heading>()) return html_of(*heading, look);
    if (const auto* listing = block.as<Listing>()) return html_of(*listing);
    if (const auto* list = block.as<List>()) return html_of(*list, look);
    if (const auto* table = block.as<TableBlock>()) return html_of(*table, look);
    if (const auto* picture = block.as<Picture>()) return html_of(*picture);
    if (const auto* verdict = block.as<Verdict>()) return html_of(*verdict, look);
    if (const auto* labelled = block.as<Labelled>()) return html_of(*labelled, look);
    if (const auto* folded = block.as<FoldedChecks>()) return html_of(*folded, look);
    if (const auto* question = block.as<Question>()) return html_of(*question, look);
    return {};
}

}  // namespace

std::string html_of(const Words& words, const HtmlLook& look) {
    std::string html;
    for (const Span& span : words)
        html += html_of(span, look);
    return html;
}

std::string html_of(const Document& blocks, const HtmlLook& look) {
    std::string html;
    for (const Block& block : blocks)
        html += html_of(block, look);
    return html;
}

std::string anchor_of(const std::string& text) {
    std::string anchor;
    for (const char c : text) {
        const auto letter = static_cast<unsigned char>(c);
        if (letter > 127 || std::isalnum(letter) != 0)
            anchor += static_cast<char>(std::tolower(letter));
        else if (!anchor.empty() && anchor.back() != '-')
            anchor += '-';
    }
    while (anchor.ends_with('-'))
        anchor.pop_back();
    return anchor;
}

std::string picture_definitions() {
    return "<svg class=\"definitions\" width=\"0\" height=\"0\" aria-hidden=\"true\">" +
           std::string(svg_definitions()) + "</svg>\n";
}

}  // namespace lockstep::lessons
