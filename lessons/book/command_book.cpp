#include <unistd.h>

#include <fmt/format.h>

#include "lessons/book/book.hpp"
#include "lessons/runner/command_line.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/core/require.hpp"
#include "src/os/child.hpp"
#include "src/os/environment.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

void declare_book(CommandLine& line) {
    Command& command =
        line.add("book",
                 "Writes the lessons, the mistakes and the glossary as a web site, with "
                 "laboratories to try things in. It needs no server and no network: open "
                 "its index.html.");
    auto& request = command.asks_for<BookRequest>();
    command.positional(
        "DIR",
        "the folder; it is made if it is missing, and an earlier book in it is replaced",
        path_into(request.folder));
}

namespace {

/// Prints on standard error which lesson runs, because that takes time.
void say(const std::string& lesson) {
    write_all(STDERR_FILENO, fmt::format("lockstep: running {}\n", lesson),
              "standard error");
}

/// Returns the folder for pages if no option names one.
fs::path cached_book(const std::string& slug) {
    const std::optional<std::string> cache = os::variable("XDG_CACHE_HOME");
    const std::optional<std::string> home = os::variable("HOME");
    if (cache && !cache->empty()) return fs::path(*cache) / "lockstep" / slug;
    if (home && !home->empty()) return fs::path(*home) / ".cache" / "lockstep" / slug;
    return os::make_temporary_folder() / slug;
}

/// Asks the desktop to open a browser, if there is a screen. Returns whether the desktop
/// was asked. The browser may outlive this program, and its output is discarded.
bool is_opened(const fs::path& page) {
    const bool has_screen = os::variable("DISPLAY") || os::variable("WAYLAND_DISPLAY");
    constexpr const char* kStart = "setsid xdg-open \"$1\" </dev/null >/dev/null 2>&1 &";
    return has_screen && ::isatty(STDOUT_FILENO) == 1 &&
           !os::find_on_path("xdg-open").empty() &&
           os::run_child({"sh", "-c", kStart, "sh", page.string()}).status == 0;
}

}  // namespace

int run(const BookRequest& request) {
    require_module();
    naming("DIR", request.folder, take_site_folder);
    std::vector<BookLesson> lessons;
    for (const LessonEntry& lesson : catalogue())
        lessons.push_back({&lesson, resolved(understood({}, lesson), lesson.default_ranks,
                                             std::nullopt)});
    write_site(request.folder, make_book(lessons, say));
    print(fmt::format("The book is in {}: open {} in a browser.\n",
                      printable(request.folder.string()),
                      printable((fs::absolute(request.folder) / "index.html").string())));
    return kSuccess;
}

int show_in_browser(const LessonEntry& lesson, const LessonOptions& options) {
    require(options.has_virtual_time(),
            "--html: a page shows a run on virtual devices, --backend sim");
    require(!options.out && !options.json && !options.step && !options.from,
            "--html shows the whole lesson; it cannot be combined with --out, --json, "
            "--step or --from");
    require_ranks(lesson, options);
    require_module();
    const fs::path folder = fs::absolute(cached_book(lesson.slug));
    take_site_folder(folder);
    write_site(folder, make_book({{&lesson, options}}, say));
    const bool chinese = language_of(options.language) == Language::chinese;
    const fs::path page = folder / (chinese ? "zh" : "") / (lesson.slug + ".html");
    const char* sentence =
        is_opened(page) ? "{} opens in your browser.\n" : "Open {} in a browser.\n";
    print(fmt::format(fmt::runtime(sentence), printable(page.string())));
    return kSuccess;
}

}  // namespace lockstep::lessons
