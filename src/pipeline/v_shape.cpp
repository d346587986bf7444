#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>

#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"

namespace lockstep {

namespace {

/// A pass of a micro-batch on a stage. The micro-batch goes down through the first
/// chunks, up through the second chunks, and the same way back. Weight halves follow in
/// free slots.
using Pass = int;
constexpr Pass kDown = 0;
constexpr Pass kUp = 1;
constexpr Pass kBackDown = 2;
constexpr Pass kBackUp = 3;
constexpr Pass kWeightUp = 4;
constexpr Pass kWeightDown = 5;
constexpr Pass kPasses = 6;

constexpr Instruction kInstructions[kPasses]{
    {InstructionKind::forward, 0, 0},         {InstructionKind::forward, 0, 1},
    {InstructionKind::backward_input, 0, 1},  {InstructionKind::backward_input, 0, 0},
    {InstructionKind::backward_weight, 0, 1}, {InstructionKind::backward_weight, 0, 0}};

constexpr bool is_forward(Pass pass) {
    return pass <= kUp;
}
constexpr bool is_weight(Pass pass) {
    return pass >= kWeightUp;
}

/// A building block: the slots of a stage's four passes of the first micro-batch, in
/// order. From one micro-batch to the next there are kInterval slots.
using Block = std::array<int, 4>;
constexpr int kInterval = 6;

/// A timetable of slots; a stage runs at most one pass in a slot. It begins as repeated
/// building blocks. Then idle slots are squeezed out.
class VTimetable {
  public:
    VTimetable(const std::vector<Block>& blocks, int micro_batches)
        : stages_(static_cast<int>(blocks.size())), micro_batches_(micro_batches) {
        int last = 0;
        for (const Block& block : blocks)
            last = std::max(last, block[kBackUp]);
        slots_ = last + 1 + kInterval * micro_batches + 2 * micro_batches;
        constexpr std::int64_t kMostCells = 200'000'000;
        require(std::int64_t{stages_} * slots_ <= kMostCells,
                "a V of {} stages and {} micro-batches is too large to be squeezed",
                stages_, micro_batches);
        cells_.assign(blocks.size(), std::vector<Cell>(slots_));
        held_.assign(blocks.size(), std::vector<int>(slots_));
        slot_of_.assign(blocks.size() * kPasses, std::vector<int>(micro_batches));
        for (int stage = 0; stage < stages_; ++stage)
            for (int i = 0; i < micro_batches; ++i)
                for (const Pass pass : {kDown, kUp, kBackDown, kBackUp})
                    put(stage, blocks[stage][pass] + kInterval * i, {pass, i});
        add_weight_halves();
        for (const std::vector<int>& held : held_)
            most_ = std::max(most_, *std::max_element(held.begin(), held.end()));
    }

    /// Moves each pass to the first free slot after everything that it needs is done. A
    /// forward moves only if the stage's peak of held activations does not grow.
    void squeeze();
    /// After a stage's last forward, runs the backwards first and the weight halves
    /// later.
    void hurry_backwards();

    std::vector<Instruction> order_of(int stage) const {
        std::vector<Instruction> order;
        for (const Cell& cell : cells_[stage]) {
            if (cell.pass == kPasses) continue;
            order.push_back(kInstructions[cell.pass]);
            order.back().micro_batch = cell.micro_batch;
        }
        return order;
    }

  private:
    struct Cell {
        Pass pass = kPasses;  ///< none
        int micro_batch = 0;
    };

    int& slot_of(int stage, int pass, int micro_batch) {
        return slot_of_[stage * kPasses + pass][micro_batch];
    }
    bool is_free(int stage, int slot) const {
        return cells_[stage][slot].pass == kPasses;
    }
    void put(int stage, int slot, Cell cell) {
        cells_[stage][slot] = cell;
        slot_of(stage, cell.pass, cell.micro_batch) = slot;
    }
    void add_weight_halves();
    void drop_weight_halves();
    void count_held(int stage);
    int ready(int stage, Cell cell);
    void move(int stage, int from, int to);
    bool has_room(int stage, int from, int to) const {
        const auto held = held_[stage].begin();
        return std::all_of(held + to, held + from,
                           [&](int count) { return count < most_; });
    }

    int stages_;
    int micro_batches_;
    int slots_ = 0;
    int most_ = 0;  ///< the largest of `held_` over all stages
    std::vector<std::vector<Cell>> cells_;
    std::vector<std::vector<int>> held_;  ///< chunks with held activations, in each slot
    std::vector<std::vector<int>> slot_of_;
};

/// Puts each weight half into the first free slot behind its input half, in order.
void VTimetable::add_weight_halves() {
    for (int stage = 0; stage < stages_; ++stage) {
        std::deque<Cell> waiting;
        for (int slot = 0; slot < slots_; ++slot) {
            const Cell cell = cells_[stage][slot];
            if (cell.pass == kBackDown || cell.pass == kBackUp) {
                const Pass half = cell.pass == kBackDown ? kWeightUp : kWeightDown;
                waiting.push_back({half, cell.micro_batch});
            } else if (cell.pass == kPasses && !waiting.empty()) {
                put(stage, slot, waiting.front());
                waiting.pop_front();
            }
        }
        count_held(stage);
    }
}

void VTimetable::drop_weight_halves() {
    for (std::vector<Cell>& cells : cells_)
        for (Cell& cell : cells)
            if (cell.pass != kPasses && is_weight(cell.pass)) cell = {};
}

void VTimetable::count_held(int stage) {
    int held = 0;
    for (int slot = 0; slot < slots_; ++slot) {
        const Pass pass = cells_[stage][slot].pass;
        held += is_forward(pass) ? 1 : 0;
        held_[stage][slot] = held;
        held -= pass == kWeightUp || pass == kWeightDown ? 1 : 0;
    }
}

/// Returns the first slot at which everything that the pass needs is done.
int VTimetable::ready(int stage, Cell cell) {
    const int i = cell.micro_batch;
    // Passes of one kind keep their order.
    int last = i > 0 ? slot_of(stage, cell.pass, i - 1) : -1;
    const auto behind = [&](int at, int pass) {
        last = std::max(last, slot_of(at, pass, i));
    };
    if (is_weight(cell.pass)) {
        behind(stage, cell.pass - 2);
        return last + 1;
    }
    const bool goes_down = cell.pass == kDown || cell.pass == kBackDown;
    const int before = goes_down ? stage - 1 : stage + 1;
    if (before >= 0 && before < stages_)
        behind(before, cell.pass);
    else if (cell.pass != kDown)
        behind(stage, cell.pass - 1);
    if (cell.pass == kBackDown) behind(stage, kUp);
    if (cell.pass == kBackUp) behind(stage, kDown);
    return last + 1;
}

void VTimetable::move(int stage, int from, int to) {
    const Cell cell = cells_[stage][from];
    cells_[stage][from] = {};
    put(stage, to, cell);
    std::vector<int>& held = held_[stage];
    if (is_forward(cell.pass))
        for (int slot = to; slot < from; ++slot)
            ++held[slot];
    if (is_weight(cell.pass))
        for (int slot = to; slot < from; ++slot)
            --held[slot + 1];
}

void VTimetable::squeeze() {
    for (int slot = 0; slot < slots_; ++slot)
        for (int stage = 0; stage < stages_; ++stage) {
            if (is_free(stage, slot)) continue;
            const Cell cell = cells_[stage][slot];
            for (int to = ready(stage, cell); to < slot; ++to)
                if (is_free(stage, to) &&
                    (!is_forward(cell.pass) || has_room(stage, slot, to))) {
                    move(stage, slot, to);
                    break;
                }
        }
}

void VTimetable::hurry_backwards() {
    drop_weight_halves();
    for (int slot = 0; slot < slots_; ++slot)
        for (int stage = 0; stage < stages_; ++stage) {
            if (is_free(stage, slot)) continue;
            const Cell cell = cells_[stage][slot];
            if (is_forward(cell.pass)) continue;
            const int last_forward = std::max(slot_of(stage, kDown, micro_batches_ - 1),
                                              slot_of(stage, kUp, micro_batches_ - 1));
            for (int to = std::max(ready(stage, cell), last_forward); to < slot; ++to)
                if (is_free(stage, to)) {
                    move(stage, slot, to);
                    break;
                }
        }
    add_weight_halves();
}

Schedule v_schedule(const std::string& name, const PipelineShape& shape,
                    Block (*block)(int stages, int stage)) {
    Schedule schedule = empty_waves(name, shape);
    std::vector<Block> blocks;
    blocks.reserve(static_cast<std::size_t>(shape.stages));
    for (int stage = 0; stage < shape.stages; ++stage)
        blocks.push_back(block(shape.stages, stage));
    VTimetable timetable(blocks, shape.micro_batches);
    timetable.squeeze();
    timetable.hurry_backwards();
    for (int stage = 0; stage < shape.stages; ++stage)
        schedule.work[stage] = timetable.order_of(stage);
    end_step(schedule);
    return schedule;
}

}  // namespace

// lesson: v-shape-blocks
Schedule zb_v_schedule(const PipelineShape& shape) {
    return v_schedule("zb-v", shape, [](int p, int s) -> Block {
        const int turn = 6 * (p - 1) + 1;
        return {4 * s, turn - 2 * s, turn + 1 + 4 * s, 2 * turn + 1 - 2 * s};
    });
}

Schedule v_half_schedule(const PipelineShape& shape) {
    return v_schedule("v-half", shape, [](int p, int s) -> Block {
        const int wait = p % 2 == 0 ? 3 : 0;
        return {2 * s, 3 * p - 2 - s, 3 * p - 1 + wait + 2 * s, 6 * p - 2 + wait - s};
    });
}

Schedule v_min_schedule(const PipelineShape& shape) {
    return v_schedule("v-min", shape, [](int p, int s) -> Block {
        const int wait = p % 3 == 0 ? 2 : 0;
        return {s, 2 * p - 1 - s, 2 * p + wait + s, 4 * p - 1 + wait - s};
    });
}
// lesson: end

}  // namespace lockstep
