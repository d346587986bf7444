#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "lessons/03_column_linear/mlp.hpp"
#include "lessons/03_column_linear/pass.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The lesson's experiments, and what later ones need of earlier ones.
class ColumnLinear final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    ColumnLinear(const LessonOptions& options, Record& record);

    std::vector<Experiment> experiments() override;

  private:
    void multiply_by_columns(Findings& found);
    void find_the_layer(Findings& found);
    void split_columns(Findings& found);
    void split_rows(Findings& found);
    void pair(Findings& found);
    void count_costs(Findings& found);

    void cut_square_layer(Findings& found);
    void give_terms_of_dx(Findings& found, const Task& task, const RunReport& without,
                          const HostTensor& dx);
    void give_terms_of_y(Findings& found, const Task& task, const HostTensor& y);
    void give_gelu_of_a_sum(Findings& found);
    /// The bytes of an all-reduce of `tensor` in that half, under names that begin with
    /// `name`.
    void give_all_reduce(Findings& found, const std::string& name,
                         const RunReport& report, const std::string& half,
                         const std::string& tensor);
    void give_bytes(Findings& found, const RunReport& gathered);
    void give_time(Findings& found, const RunReport& gathered);
    void widen(Findings& found);
    void record_rows(const Task& task, const RunReport& together);
    void record_mlp(const Task& alone);

    /// factor (t-1)/t of the bytes of a buffer whose elements the ranks divide.
    std::int64_t sent(std::int64_t factor, std::int64_t bytes) const;
    double bound() const;
    /// How many devices have their numbers shown.
    int shown_ranks() const { return std::min(ranks_, kShownRanks); }

    /// The example's three devices, whatever the ranks.
    std::unique_ptr<Cluster> example_cluster() const;
    bool lacks_example_ranks() const;
    /// The task on one device, on all ranks, and on all ranks as a mistake
    /// that --check full is not to stop.
    RunReport pass_alone(const Task& task, bool trace = false) const;
    RunReport pass_together(const Task& task, bool trace = false) const;
    RunReport pass_wrongly(const Task& task) const;

    static constexpr int kExampleRanks = 3;
    static constexpr int kShownRanks = 4;

    int ranks_;
    MlpSizes sizes_;
    RunReport mlp_alone_;
    RunReport mlp_together_;
};

/// The lesson `column-linear`: a linear layer on several devices, by columns and by rows.
LessonEntry column_linear_lesson();

}  // namespace lockstep::lessons
