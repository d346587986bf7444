#include "lessons/book/book.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <fmt/format.h>

#include "lessons/book/laboratory_runs.hpp"
#include "lessons/page/html.hpp"
#include "lessons/page/markdown.hpp"
#include "lessons/page/quote.hpp"
#include "lessons/page/sha256.hpp"
#include "lessons/runner/fault_pages.hpp"
#include "lessons/runner/notebook.hpp"
#include "lessons/runner/pages.hpp"
#include "src/chart/svg.hpp"
#include "src/core/require.hpp"
#include "src/os/child.hpp"
#include "src/report/files.hpp"
#include "src/report/version.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::array kLanguages{Language::english, Language::chinese};

/// A laboratory: a page with a part that its script fills, and the data for the script.
struct Laboratory {
    const char* name;
    std::function<Json()> data;
};

const std::vector<Laboratory>& laboratories() {
    static const std::vector<Laboratory> kAll{
        {"pipeline", nullptr}, {"ring", ring_runs}, {"attention", attention_runs}};
    return kAll;
}

/// Returns the text of a file of `lessons`.
std::string_view text_of(const std::string& path) {
    const std::string_view text = text_called(path);
    if (text.empty())
        throw std::logic_error("lessons/meson.build does not list the text " + path);
    return text;
}

/// Returns the text of a page in a language; in English if there is no translation.
std::string_view translated(const std::string& stem, Language language) {
    std::string_view text;
    if (language == Language::chinese) text = text_called(stem + ".zh.md");
    return text.empty() ? text_of(stem + ".md") : text;
}

/// Returns the page in the book for a link from the source tree; empty if the book has no
/// such page.
std::string place_in_book(const std::string& link) {
    if (link.starts_with("https://") || link.starts_with("#")) return link;
    const std::size_t hash = std::min(link.find('#'), link.size());
    const std::filesystem::path path = link.substr(0, hash);
    const std::string anchor = link.substr(hash);
    const std::string name = path.filename().string();
    const std::string folder = path.parent_path().filename().string();
    if (path.extension() == ".html") return link;
    for (const LessonEntry& lesson : catalogue())
        if (folder == lesson.folder) return lesson.slug + ".html" + anchor;
    if (name == "README.md" && (folder.empty() || folder == "faults"))
        return "faults.html";
    if (folder == "book") return path.stem().string() + ".html" + anchor;
    if (name == "glossary.md" || name == "limits.md")
        return path.stem().string() + ".html" + anchor;
    if (name.size() == 6 && name[0] == 'F' && path.extension() == ".md")
        return path.stem().string() + ".html" + anchor;
    return "";
}

std::string link(const std::string& place, const std::string& words) {
    return fmt::format("<a href=\"{}\">{}</a>", xml_escaped(place), xml_escaped(words));
}

/// Returns the title of a page in Markdown.
std::string title_of(const Document& page) {
    const auto* heading = page.empty() ? nullptr : page.front().as<Heading>();
    return heading ? plain(heading->title) : "";
}

/// Returns data for a script; "</" is escaped, because it would end the element.
std::string script_of(const std::string& json) {
    std::string text;
    for (const char c : json)
        text += c == '/' && text.ends_with('<') ? "\\/" : std::string(1, c);
    return "<script type=\"application/json\" id=\"data\">" + text + "</script>\n";
}

/// Makes the pages of one language.
class PagesInLanguage {
  public:
    PagesInLanguage(Site& site, Language language, const std::vector<BookLesson>& lessons)
        : site_(site), language_(language), lessons_(lessons) {}

    void add_front() {
        add("index.html", "Lockstep", page_in_parts("book/index"));
        add_text("limits");
        add_text("glossary");
    }

    void add_faults() {
        add("faults.html", said("Mistakes"),
            html_of(fault_page("README", language_), look()));
        std::vector<std::pair<std::string, std::string>> titles;  // for all pages
        for (const FaultClass& fault : fault_classes())
            titles.emplace_back(fault.id, title_of(fault_page(fault.id, language_)));
        for (std::size_t i = 0; i < titles.size(); ++i) {
            const auto& [id, title] = titles[i];
            std::string neighbours;
            if (i > 0)
                neighbours +=
                    link(titles[i - 1].first + ".html", "← " + titles[i - 1].second);
            if (i + 1 < titles.size())
                neighbours +=
                    link(titles[i + 1].first + ".html", titles[i + 1].second + " →");
            add(id + ".html", title,
                html_of(fault_page(id, language_), look()) +
                    "<nav class=\"neighbours\">" + neighbours + "</nav>\n");
        }
    }

    void add_laboratory(const Laboratory& laboratory, const std::string& data) {
        const std::string name = laboratory.name;
        const Document page = read_markdown(translated("book/" + name, language_));
        add(name + ".html", title_of(page),
            page_in_parts("book/" + name) + script_of(data),
            {"laboratory.js", name + ".js"});
    }

    /// `found` has the results of the lesson's experiments, and `record` is the SHA-256
    /// of their record.
    void add_lesson(const BookLesson& run, const Findings& found,
                    const RunOptions& options, const std::string& record) {
        const LessonPage page = page_of(*run.lesson, language_);
        std::string contents, sections;
        const std::vector<const PageSection*> steps = page.steps();
        for (std::size_t i = 0; i < steps.size(); ++i) {
            const PageSection& step = *steps[i];
            contents += fmt::format("<li>{}</li>\n", link("#" + step.name, step.title));
            sections += fmt::format(
                "<section id=\"{}\" class=\"step\">\n<h2>{}</h2>\n{}</section>\n",
                xml_escaped(step.name),
                xml_escaped(fmt::format(fmt::runtime(said("Step {} of {}: {}")), i + 1,
                                        steps.size(), step.title)),
                shown(page, step.text, found, run.options.solutions));
        }
        std::string end;
        for (const PageSection& section : page.sections())
            if (!section.is_step())
                end += html_of({{Heading{2, words_of(section.title)}}}, look()) +
                       shown(page, section.text, found, run.options.solutions);
        add(run.lesson->slug + ".html", page.title(),
            fmt::format(
                "<article class=\"lesson\" data-lesson=\"{}\" data-run=\"{}\" "
                "data-record=\"{}\" data-version=\"{}\">\n<h1>{}</h1>\n"
                "<p class=\"lead\">{}</p>\n<p class=\"facts\">{}</p>\n"
                "<nav class=\"contents\" aria-label=\"{}\"><ol>\n{}</ol></nav>\n"
                "<div class=\"offer\"></div>\n"
                "{}<section class=\"end\" id=\"end\">\n<div class=\"score\"></div>\n"
                "{}{}</section>\n</article>\n",
                run.lesson->slug, xml_escaped(notebook_key(options)), record, kVersion,
                xml_escaped(page.title()), xml_escaped(page.question()), facts(page),
                said("Contents"), contents, sections, end, next_lesson(*run.lesson)));
    }

  private:
    std::string said(const char* english) const {
        return lessons::said(language_, english);
    }
    HtmlLook look() const { return {language_, place_in_book}; }
    std::string shown(const LessonPage& page, const Document& section,
                      const Findings& found, Solutions solutions) const {
        return html_of(filled(page, section, found, language_, solutions), look());
    }
    /// Returns "" or "zh/".
    std::string folder() const { return language_ == Language::chinese ? "zh/" : ""; }
    /// Returns the path from a page to the site's common files.
    std::string root() const { return language_ == Language::chinese ? "../" : ""; }

    void add_text(const std::string& name) {
        const Document page = read_markdown(translated(name, language_));
        add(name + ".html", title_of(page),
            html_of(Document{page.front()}, look()) + links_to_sections(page) +
                html_of(Document(page.begin() + 1, page.end()), look()));
    }

    /// Returns the links with which a long page begins.
    std::string links_to_sections(const Document& page) const {
        constexpr int kMost = 5;  // a page with more sections is long
        std::string links;
        int sections = 0;
        for (const Block& block : page)
            if (const auto* heading = block.as<Heading>();
                heading && heading->level == 2) {
                const std::string title = plain(heading->title);
                links += link("#" + anchor_of(title), title) + "\n";
                ++sections;
            }
        if (sections <= kMost) return "";
        return fmt::format("<nav class=\"sections\" aria-label=\"{}\">\n{}</nav>\n",
                           said("Contents"), links);
    }

    bool has(const LessonEntry& lesson) const {
        return std::ranges::any_of(lessons_, [&](const BookLesson& each) {
            return each.lesson->slug == lesson.slug;
        });
    }

    std::string lesson_link(const LessonEntry& lesson) const {
        const std::string title = page_of(lesson, language_).title();
        return has(lesson) ? link(lesson.slug + ".html", title) : xml_escaped(title);
    }

    /// Replaces each lesson in "gradient-accumulation, column-linear" by a link with its
    /// title.
    std::string titles_of(std::string slugs) const {
        for (const LessonEntry& lesson : catalogue())
            if (const std::size_t at = slugs.find(lesson.slug); at != slugs.npos)
                slugs.replace(at, lesson.slug.size(), lesson_link(lesson));
        return slugs;
    }

    /// Shows the assignment as the command that begins it.
    std::string facts(const LessonPage& page) const {
        std::string assignment = page.fact("assignment");
        if (!assignment.empty() && assignment != "none")
            assignment =
                fmt::format("<code>lockstep assignment new {} DIR</code>", assignment);
        return facts_text(page, titles_of(page.fact("after")), assignment);
    }

    std::string next_lesson(const LessonEntry& lesson) const {
        std::string html = fmt::format(
            "<p>{}</p>\n", link("limits.html", said("What Lockstep does not model")));
        const auto here = std::ranges::find(catalogue(), lesson.slug, &LessonEntry::slug);
        if (here != catalogue().end() && here + 1 != catalogue().end())
            html += fmt::format("<p class=\"next\">{}</p>\n",
                                fmt::format(fmt::runtime(said("The next lesson is {}.")),
                                            lesson_link(*(here + 1))));
        return html;
    }

    std::string syllabus() const {
        std::string items;
        for (const LessonEntry& lesson : catalogue()) {
            const LessonPage page = page_of(lesson, language_);
            items += fmt::format(
                "<li data-lesson=\"{}\"><p><strong>{}</strong></p><p>{}</p>"
                "<p class=\"facts\">{}</p></li>\n",
                lesson.slug, lesson_link(lesson), xml_escaped(page.question()),
                facts(page));
        }
        return "<ol class=\"syllabus\">\n" + items + "</ol>\n";
    }

    std::string list_of_laboratories() const {
        std::string items;
        for (const Laboratory& laboratory : laboratories()) {
            const std::string name = laboratory.name;
            const Document page = read_markdown(translated("book/" + name, language_));
            const auto* first = page.size() > 1 ? page[1].as<Paragraph>() : nullptr;
            items += fmt::format("<li><p><strong>{}</strong></p><p>{}</p></li>\n",
                                 link(name + ".html", title_of(page)),
                                 first ? html_of(first->text, look()) : "");
        }
        return "<ul class=\"syllabus\">\n" + items + "</ul>\n";
    }

    /// Returns one of the book's own pages, with its directives carried out.
    std::string page_in_parts(const std::string& stem) const {
        std::string html;
        for (const Block& block : read_markdown(translated(stem, language_))) {
            const std::optional<Directive> directive = directive_of(block);
            html +=
                directive ? part_called(*directive) : html_of(Document{block}, look());
        }
        return html;
    }

    std::string part_called(const Directive& directive) const {
        if (directive.word == "laboratory") return "<div id=\"laboratory\"></div>\n";
        if (directive.word == "lessons") return syllabus();
        if (directive.word == "laboratories") return list_of_laboratories();
        if (directive.word == "code") {
            const Quote& quote = find_quote(directive.name);
            return html_of({{Listing{"cpp", std::string(quote.code),
                                     fmt::format("{}:{}", quote.file, quote.line)}}},
                           look());
        }
        throw std::logic_error("a page of the book has no part called " + directive.word);
    }

    void add(const std::string& name, const std::string& title, const std::string& body,
             const std::vector<std::string>& scripts = {}) {
        std::string script_tags;
        for (const std::string& script : scripts)
            script_tags +=
                fmt::format("<script defer src=\"{}{}\"></script>\n", root(), script);
        const bool chinese = language_ == Language::chinese;
        const std::string other =
            chinese
                ? fmt::format("<a lang=\"en\" hreflang=\"en\" href=\"../{}\">English</a>",
                              name)
                : fmt::format("<a lang=\"zh\" hreflang=\"zh\" href=\"zh/{}\">中文</a>",
                              name);
        site_[folder() + name] = fmt::format(
            "<!doctype html>\n<html lang=\"{}\" data-root=\"{}\">\n<head>\n"
            "<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<title>{}</title>\n<link rel=\"icon\" href=\"data:,\">\n"
            "<link rel=\"stylesheet\" href=\"{}look.css\">\n"
            "{}<script src=\"{}book.js\"></script>\n{}</head>\n<body>\n"
            "<a class=\"skip\" href=\"#text\">{}</a>\n<header><nav aria-label=\"{}\">{} "
            "{} "
            "{} {} {} {}<button id=\"theme\" "
            "type=\"button\">{}</button></nav></header>\n{}"
            "<main "
            "id=\"text\">\n{}</main>\n<footer><p>{}</p></footer>\n</body>\n</html>\n",
            chinese ? "zh" : "en", root(),
            xml_escaped(title == "Lockstep" ? title : title + " · Lockstep"), root(),
            chinese ? "<script src=\"words.js\"></script>\n" : "", root(), script_tags,
            said("Skip to the text"), said("The book"), link("index.html", "Lockstep"),
            link("index.html#" + anchor_of(said("Laboratories")), said("Laboratories")),
            link("faults.html", said("Mistakes")), link("glossary.html", said("Words")),
            link("limits.html", said("Limits")), other, said("Light or dark"),
            picture_definitions(), body,
            fmt::format(fmt::runtime(said("Computed by Lockstep {}.")), kVersion));
    }

    Site& site_;
    Language language_;
    const std::vector<BookLesson>& lessons_;
};

/// Runs a lesson, and adds it to the pages of each language.
void add_lesson(const BookLesson& run, std::vector<PagesInLanguage>& languages) {
    Record record;
    record.options = run_options(run.lesson->slug, run.options, run.lesson->default_ranks,
                                 run.lesson->settings);
    const std::unique_ptr<Lesson> made = run.lesson->make(run.options, record);
    LessonSteps steps(*run.lesson, *made, Language::english, record);
    for (const Step& step : steps.steps())
        step.run();
    for (PagesInLanguage& pages : languages)
        pages.add_lesson(run, steps.found(), record.options,
                         sha256(metrics_json(record)));
}

/// Returns all translations as a script: an object from English to Chinese.
std::string words_script() {
    Json words = Json::object();
    for (const auto& [english, chinese] : phrases())
        words[std::string(english)] = std::string(chinese);
    return "const chineseWords = " + words.dump(0) + ";\n";
}

/// Returns the path of the module for browsers, which is Lockstep itself.
std::filesystem::path module_file() {
    const std::filesystem::path folder = os::folder_of_program();
    for (const char* place : {"book/lockstep.js", LOCKSTEP_MODULE})
        if (std::filesystem::exists(folder / place)) return folder / place;
    throw MissingError(
        "this build has no lockstep.js, with which the book computes in a browser. "
        "Emscripten builds it: run ./lockstep book DIR in Lockstep's folder");
}

}  // namespace

void require_module() {
    module_file();
}

Site make_book(const std::vector<BookLesson>& lessons,
               const std::function<void(const std::string&)>& say) {
    Site site;
    constexpr std::uint64_t kLargestModule = 16 << 20;
    site["lockstep.js"] = read_text_file(module_file(), kLargestModule);
    site["zh/words.js"] = words_script();
    for (const char* name : {"look.css", "book.js", "laboratory.js"})
        site[name] = text_of(std::string("book/") + name);
    std::vector<PagesInLanguage> languages;
    for (const Language language : kLanguages) {
        languages.emplace_back(site, language, lessons);
        languages.back().add_front();
        languages.back().add_faults();
    }
    for (const Laboratory& laboratory : laboratories()) {
        const std::string name = laboratory.name;
        say(name);
        site[name + ".js"] = text_of("book/" + name + ".js");
        const std::string data = laboratory.data ? laboratory.data().dump() : "{}";
        for (PagesInLanguage& pages : languages)
            pages.add_laboratory(laboratory, data);
    }
    for (const BookLesson& lesson : lessons) {
        say(lesson.lesson->slug);
        add_lesson(lesson, languages);
    }
    return site;
}

}  // namespace lockstep::lessons
