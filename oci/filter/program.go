package filter

import (
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
)

// Offsets within the kernel's struct seccomp_data. The lower half of an argument comes first.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
	sizeofArg    = 8
	upperHalf    = 4
)

// maxSkip is the longest conditional jump.
const maxSkip = 255

// tree returns a binary search for the number in the accumulator. Each branch ends with a return.
func tree(calls []call) []bpf.Instruction {
	if len(calls) == 1 {
		return calls[0].program()
	}
	middle := len(calls) / 2
	lower, upper := tree(calls[:middle]), tree(calls[middle:])
	jump := bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: calls[middle].number, SkipTrue: uint8(min(len(lower), maxSkip))}
	if len(lower) <= maxSkip {
		return slices.Concat([]bpf.Instruction{jump}, lower, upper)
	}
	jump.SkipTrue, jump.SkipFalse = 0, 1
	return slices.Concat([]bpf.Instruction{jump, bpf.Jump{Skip: uint32(len(lower))}}, lower, upper)
}

// unless returns a program that runs body, which returns, unless the accumulator has the value. It then skips body.
func unless(value uint32, body []bpf.Instruction) []bpf.Instruction {
	return slices.Concat([]bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipFalse: 1}, bpf.Jump{Skip: uint32(len(body))},
	}, body)
}

func (c call) program() (out []bpf.Instruction) {
	for _, r := range c.rules {
		body := []bpf.Instruction{bpf.RetConstant{Val: r.action}}
		for _, condition := range slices.Backward(r.conditions) {
			body = append(test(condition, c.wide, uint8(len(body))), body...)
		}
		out = append(out, body...)
	}
	return append(out, bpf.RetConstant{Val: c.otherwise})
}

// comparison compares a half of an argument with the same half of a value.
type comparison struct {
	mask   bool // Value is a mask, and ValueTwo the result
	negate bool // the condition is met if the comparison fails
	cond   bpf.JumpTest
}

// compare has the comparisons by the operators of the specification.
var compare = map[specs.LinuxSeccompOperator]comparison{
	specs.OpEqualTo:      {cond: bpf.JumpEqual},
	specs.OpNotEqual:     {cond: bpf.JumpEqual, negate: true},
	specs.OpGreaterThan:  {cond: bpf.JumpGreaterThan},
	specs.OpGreaterEqual: {cond: bpf.JumpGreaterOrEqual},
	specs.OpLessEqual:    {cond: bpf.JumpGreaterThan, negate: true},
	specs.OpLessThan:     {cond: bpf.JumpGreaterOrEqual, negate: true},
	specs.OpMaskedEqual:  {cond: bpf.JumpEqual, mask: true},
}

// test returns a program that goes on if the condition is met, and else skips the next instructions.
func test(c specs.LinuxSeccompArg, wide bool, skip uint8) []bpf.Instruction {
	how := compare[c.Op]
	mask, value := ^uint64(0), c.Value
	if how.mask {
		mask, value = c.Value, c.ValueTwo
	}
	at := uint32(offsetArgs + sizeofArg*c.Index)
	lower := load(at, uint32(mask))
	decide := bpf.JumpIf{Cond: how.cond, Val: uint32(value), SkipFalse: skip}
	if how.negate {
		decide.SkipTrue, decide.SkipFalse = skip, 0
	}
	lower = append(lower, decide)
	if !wide {
		return lower
	}
	// The upper half decides unless it is equal.
	upper := load(at+upperHalf, uint32(mask>>32))
	after := uint8(len(lower)) // skips the comparison of the lower half: the condition is met
	if how.cond != bpf.JumpEqual {
		greater := bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: uint32(value >> 32), SkipTrue: after + 1}
		if how.negate {
			greater.SkipTrue += skip
		}
		upper = append(upper, greater)
	}
	differs := bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(value >> 32), SkipFalse: after}
	if !how.negate {
		differs.SkipFalse += skip
	}
	return slices.Concat(upper, []bpf.Instruction{differs}, lower)
}

// load loads half of an argument.
func load(at, mask uint32) []bpf.Instruction {
	out := []bpf.Instruction{bpf.LoadAbsolute{Off: at, Size: 4}}
	if mask != ^uint32(0) {
		out = append(out, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: mask})
	}
	return out
}
