#include "src/inference/service_picture.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

std::vector<ServiceTrace::Asked> asked_of(const std::vector<Request>& requests) {
    std::vector<ServiceTrace::Asked> asked;
    asked.reserve(requests.size());
    for (const Request& request : requests)
        asked.push_back({request.id, request.arrival,
                         static_cast<std::int64_t>(request.prompt.size())});
    return asked;
}

namespace {

constexpr std::size_t kMostRequestsDrawn = 24;

// Passes with rows are forwards, so they have one colour, in different shades.
const Look kPrompt{Meaning::forward, 'P', '=', "rows of a prompt"};
const Look kToken{Meaning::forward, 't', '-', "a token", 0.6};
const Look kBoth{Meaning::forward, 'B', '+', "prompts and tokens in one pass", 0.3};
const Look kAgain{Meaning::workspace, 'A', '=',
                  "rows computed again, because the request was preempted"};
const Look kEmpty{Meaning::operation, 'o', 'o', "a pass without rows, for other ranks"};
const Look kWaits{Meaning::resting, 'w', '_', "waits", 0.5};

/// The words of a box.
struct ServiceBox {
    std::string label;
    std::string tooltip;
};

std::string counted_rows(std::int64_t count, const char* one, const char* many) {
    return fmt::format("{} {}", count_text(count), count == 1 ? one : many);
}

/// Makes the chart. A box's `source` is the place of its words in `boxes_`.
class ServiceChart {
  public:
    explicit ServiceChart(ServiceTrace trace) : trace_(std::move(trace)) {
        chart_.member = "replica";
        const std::size_t count = std::min(trace_.requests.size(), kMostRequestsDrawn);
        requests_.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            place_of_[trace_.requests[i].id] = i;
            requests_.push_back({{}, trace_.requests[i].arrival});
        }
        for (const auto* passes : {&trace_.prompts, &trace_.passes})
            for (const ServedPass& pass : *passes)
                for (const ServedPass::Piece& piece : pass.pieces)
                    if (place_of_.contains(piece.request))
                        end_ = std::max(end_, pass.end);
    }

    Chart chart() {
        Panel panel;
        panel.title = trace_.title;
        panel.end = end_;
        panel.axis = Axis::of_seconds(end_);
        RowGroup group{{trace_.replica}, {}, {}};
        const bool apart = !trace_.prompts.empty();
        if (apart) group.rows.push_back(row_of_passes("prompts", trace_.prompts));
        group.rows.push_back(row_of_passes(apart ? "tokens" : "passes", trace_.passes));
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            Row row;
            row.label = fmt::format("request {}", trace_.requests[i].id);
            row.boxes = std::move(requests_[i].boxes);
            group.rows.push_back(std::move(row));
        }
        panel.groups.push_back(std::move(group));
        panel.note = note();
        panel.words_of = [boxes = std::make_shared<std::vector<ServiceBox>>(
                              std::move(boxes_))](const RowGroup&, const Box& box) {
            const ServiceBox& source = (*boxes)[box.source];
            BoxWords words{{}, source.tooltip};
            if (!source.label.empty()) words.labels.push_back(source.label);
            return words;
        };
        chart_.panels.push_back(std::move(panel));
        for (const Look& look : {kPrompt, kToken, kBoth, kAgain, kEmpty, kWaits})
            if (std::ranges::find(chart_.looks, look) != chart_.looks.end())
                chart_.legend.push_back({"", {chart_.look(look)}, look.words});
        if (apart) add_pages("pages of devices that compute prompts", trace_.prompts);
        add_pages(
            apart ? "pages of devices that generate tokens" : "pages that sequences have",
            trace_.passes);
        return std::move(chart_);
    }

  private:
    struct RequestRow {
        std::vector<Box> boxes;
        Picoseconds free = 0;       ///< when it begins to wait
        std::int64_t computed = 0;  ///< tokens that have been through the model
        std::int64_t tokens = 0;    ///< tokens that it has got
        std::int64_t last_pass = -1;
        const void* device = nullptr;  ///< the device of its last pass
    };

    std::string note() const {
        const std::size_t all = trace_.requests.size();
        if (all == requests_.size()) return "";
        return fmt::format("the first {} of {} requests", requests_.size(),
                           count_text(static_cast<std::int64_t>(all)));
    }

    void add_box(std::vector<Box>& boxes, Picoseconds start, Picoseconds end,
                 const Look& look, ServiceBox words) {
        boxes.push_back({start, end, chart_.look(look), -1, 0, boxes_.size()});
        words.tooltip += fmt::format("\n{} to {} ({})", time_text(start), time_text(end),
                                     time_text(end - start));
        boxes_.push_back(std::move(words));
    }

    /// Returns a row of the passes that begin before all drawn requests have their last
    /// token. Also adds boxes for these passes to the rows of the drawn requests.
    Row row_of_passes(const std::string& label, const std::vector<ServedPass>& passes) {
        Row row;
        row.label = label;
        row.shows_idle = true;
        Picoseconds busy = 0;
        for (std::size_t i = 0; i < passes.size() && passes[i].start < end_; ++i) {
            const ServedPass& pass = passes[i];
            busy += std::min(pass.end, end_) - pass.start;
            add_pass(row.boxes, pass, i);
            for (const ServedPass::Piece& piece : pass.pieces)
                if (const auto found = place_of_.find(piece.request);
                    found != place_of_.end())
                    add_piece(found->second, pass, piece, i, &passes);
        }
        row.busy = static_cast<double>(busy) /
                   static_cast<double>(std::max<Picoseconds>(end_, 1));
        return row;
    }

    void add_pass(std::vector<Box>& boxes, const ServedPass& pass, std::size_t number) {
        std::int64_t prompts = 0, tokens = 0;
        for (const ServedPass::Piece& piece : pass.pieces)
            (is_token(piece) ? tokens : prompts) += piece.rows;
        const Look& look = prompts > 0 && tokens > 0 ? kBoth
                           : prompts > 0             ? kPrompt
                           : tokens > 0              ? kToken
                                                     : kEmpty;
        std::string words = fmt::format("pass {}", number);
        if (prompts > 0)
            words += ", " + counted_rows(prompts, "row of a prompt", "rows of prompts");
        if (tokens > 0) words += ", " + counted_rows(tokens, "decode", "decodes");
        if (pass.pieces.empty()) words += ", without rows";
        add_box(boxes, pass.start, std::min(pass.end, end_), look,
                {pass.pieces.empty() ? "" : count_text(prompts + tokens),
                 fmt::format("{}\n{} of {} pages", words, count_text(pass.pages),
                             count_text(trace_.pages))});
    }

    void add_piece(std::size_t place, const ServedPass& pass,
                   const ServedPass::Piece& piece, std::size_t number,
                   const void* device) {
        RequestRow& row = requests_[place];
        const auto pass_number = static_cast<std::int64_t>(number);
        const bool was_in_last = row.device == device && row.last_pass + 1 == pass_number;
        if (!was_in_last && pass.start > row.free)
            add_box(row.boxes, row.free, pass.start, kWaits,
                    {"waits", fmt::format("request {} waits", piece.request)});
        const bool again = piece.first < row.computed;
        const bool token = !again && is_token(piece);
        std::string words =
            token ? fmt::format("token {} of request {}", row.tokens, piece.request)
                  : fmt::format("request {}, {}", piece.request,
                                rows_text(piece, piece.first + piece.rows));
        if (again) words += ", once more";
        if (piece.wanted && !token) words += fmt::format(", and token {}", row.tokens);
        add_box(row.boxes, pass.start, std::min(pass.end, end_),
                again   ? kAgain
                : token ? kToken
                        : kPrompt,
                {token ? std::to_string(row.tokens) : count_text(piece.rows),
                 fmt::format("{}\nin pass {}", words, number)});
        row.computed = std::max(row.computed, piece.first + piece.rows);
        row.tokens += piece.wanted;
        row.free = pass.end;
        row.last_pass = pass_number;
        row.device = device;
    }

    static std::string rows_text(const ServedPass::Piece& piece, std::int64_t end) {
        return piece.rows == 1 ? fmt::format("row {}", piece.first)
                               : fmt::format("rows {} to {}", piece.first, end - 1);
    }

    /// Returns whether the piece is a decode: a single row, after the prompt, that yields
    /// the next token.
    bool is_token(const ServedPass::Piece& piece) const {
        const auto found = prompts_.find(piece.request);
        return piece.rows == 1 && piece.wanted && found != prompts_.end() &&
               piece.first >= found->second;
    }

    void add_pages(const std::string& title, const std::vector<ServedPass>& passes) {
        Panel panel;
        panel.title = title;
        panel.end = end_;
        panel.axis = Axis::of_seconds(end_);
        panel.amount_text = [](double pages) {
            return counted_rows(static_cast<std::int64_t>(pages), "page", "pages");
        };
        panel.layers = {chart_.look({Meaning::cache, 0, 0, "pages that sequences have"})};
        Strip strip{"", {Level{}}, 0, 0};
        for (const ServedPass& pass : passes) {
            if (pass.start >= end_) break;
            const auto pages = static_cast<double>(pass.pages);
            if (strip.levels.back().time == pass.start) strip.levels.pop_back();
            strip.levels.push_back({pass.start, {pages}});
            if (pages <= strip.peak) continue;
            strip.peak = pages;
            strip.peak_at = pass.start;
        }
        panel.groups.push_back({{trace_.replica}, {}, {std::move(strip)}});
        chart_.panels.push_back(std::move(panel));
    }

    static std::map<std::int64_t, std::int64_t> prompts_of(const ServiceTrace& trace) {
        std::map<std::int64_t, std::int64_t> prompts;
        for (const ServiceTrace::Asked& request : trace.requests)
            prompts[request.id] = request.prompt;
        return prompts;
    }

    ServiceTrace trace_;
    std::map<std::int64_t, std::int64_t> prompts_ = prompts_of(trace_);
    Chart chart_;
    Picoseconds end_ = 0;
    std::map<std::int64_t, std::size_t> place_of_;  ///< index in requests_, by request id
    std::vector<RequestRow> requests_;
    std::vector<ServiceBox> boxes_;
};

}  // namespace

Chart service_chart(ServiceTrace trace) {
    return ServiceChart(std::move(trace)).chart();
}

}  // namespace lockstep
