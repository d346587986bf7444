#include "lessons/page/markdown.hpp"

#include <cmark-gfm-core-extensions.h>
#include <cmark-gfm.h>
#include <mutex>

namespace lockstep::lessons {

namespace {

using Tree = std::unique_ptr<cmark_node, decltype(&cmark_node_free)>;

Tree parsed(std::string_view text) {
    static std::once_flag registered;
    std::call_once(registered, cmark_gfm_core_extensions_ensure_registered);
    const std::unique_ptr<cmark_parser, decltype(&cmark_parser_free)> parser(
        cmark_parser_new(CMARK_OPT_VALIDATE_UTF8), cmark_parser_free);
    cmark_parser_attach_syntax_extension(parser.get(),
                                         cmark_find_syntax_extension("table"));
    cmark_parser_feed(parser.get(), text.data(), text.size());
    return {cmark_parser_finish(parser.get()), cmark_node_free};
}

std::string text_of(const char* text) {
    return text ? text : "";
}

template <typename Take>
void for_each_child(cmark_node* node, const Take& take) {
    for (cmark_node* child = cmark_node_first_child(node); child;
         child = cmark_node_next(child))
        take(child);
}

/// Appends the text of a node, in the node's style.
void append(Words& words, cmark_node* node, Span look) {
    const auto say = [&](std::string text) {
        look.text = std::move(text);
        append(words, look);
    };
    switch (cmark_node_get_type(node)) {
        case CMARK_NODE_TEXT:
            return say(text_of(cmark_node_get_literal(node)));
        case CMARK_NODE_CODE:
            look.code = true;
            return say(text_of(cmark_node_get_literal(node)));
        case CMARK_NODE_SOFTBREAK:
        case CMARK_NODE_LINEBREAK:
            return say(" ");
        case CMARK_NODE_STRONG:
            look.strong = true;
            break;
        case CMARK_NODE_EMPH:
            look.emphasis = true;
            break;
        case CMARK_NODE_LINK:
            look.link = text_of(cmark_node_get_url(node));
            break;
        case CMARK_NODE_HTML_INLINE:
            return;
        default:
            break;
    }
    for_each_child(node, [&](cmark_node* child) { append(words, child, look); });
}

Words words_in(cmark_node* node) {
    Words words;
    for_each_child(node, [&](cmark_node* child) { append(words, child, {}); });
    return words;
}

Document blocks_of(cmark_node* node);

List list_of(cmark_node* node) {
    List list;
    list.numbered = cmark_node_get_list_type(node) == CMARK_ORDERED_LIST;
    list.first = list.numbered ? cmark_node_get_list_start(node) : 1;
    for_each_child(node,
                   [&](cmark_node* item) { list.items.push_back(blocks_of(item)); });
    return list;
}

TableBlock table_in(cmark_node* node) {
    TableBlock table;
    for_each_child(node, [&](cmark_node* row) {
        std::vector<Words> cells;
        for_each_child(row, [&](cmark_node* cell) { cells.push_back(words_in(cell)); });
        if (table.head.empty())
            table.head = std::move(cells);
        else
            table.rows.push_back(std::move(cells));
    });
    return table;
}

Listing listing_of(cmark_node* node) {
    Listing listing;
    listing.language = text_of(cmark_node_get_fence_info(node));
    listing.text = text_of(cmark_node_get_literal(node));
    if (listing.text.ends_with('\n')) listing.text.pop_back();
    return listing;
}

Document blocks_of(cmark_node* node) {
    Document blocks;
    const auto take = [&](auto kind, cmark_node* child) {
        blocks.push_back({std::move(kind), cmark_node_get_start_line(child)});
    };
    for_each_child(node, [&](cmark_node* child) {
        const cmark_node_type type = cmark_node_get_type(child);
        if (type == CMARK_NODE_HEADING)
            take(Heading{cmark_node_get_heading_level(child), words_in(child)}, child);
        else if (type == CMARK_NODE_PARAGRAPH)
            take(Paragraph{words_in(child)}, child);
        else if (type == CMARK_NODE_CODE_BLOCK)
            take(listing_of(child), child);
        else if (type == CMARK_NODE_LIST)
            take(list_of(child), child);
        else if (type == CMARK_NODE_BLOCK_QUOTE)
            take(Quotation{blocks_of(child)}, child);
        else if (std::string_view(cmark_node_get_type_string(child)) == "table")
            take(table_in(child), child);
    });
    return blocks;
}

}  // namespace

Document read_markdown(std::string_view text) {
    return blocks_of(parsed(text).get());
}

}  // namespace lockstep::lessons
