package devices

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// rule is an OCI device rule. A missing number stands for all numbers.
type rule struct {
	Allow  bool   `json:"allow"`
	Type   string `json:"type"`
	Major  *int64 `json:"major"`
	Minor  *int64 `json:"minor"`
	Access string `json:"access"`
}

// usual are the rules that come after a container's own: the devices that every container has, and any mknod.
func usual() []rule {
	number := func(n int64) *int64 { return &n }
	rules := []rule{{Allow: true, Type: "c", Access: "m"}, {Allow: true, Type: "b", Access: "m"}}
	for _, d := range [][2]int64{{1, 3}, {1, 8}, {1, 7}, {5, 0}, {1, 5}, {1, 9}, {5, 1}, {5, 2}} {
		rules = append(rules, rule{true, "c", number(d[0]), number(d[1]), "rwm"})
	}
	return append(rules, rule{true, "c", number(136), nil, "rwm"}) // terminals
}

// instruction is a BPF instruction. The registers are the destination, and the source times 16.
type instruction struct {
	code, registers uint8
	offset          int16
	value           int32
}

// The instructions, and the registers of a program.
const (
	loadWord    = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W
	and         = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	shift       = unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K
	copyWord    = unix.BPF_ALU | unix.BPF_MOV | unix.BPF_X
	set         = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K
	unless      = unix.BPF_JMP | unix.BPF_JNE | unix.BPF_K
	unlessEqual = unix.BPF_JMP | unix.BPF_JNE | unix.BPF_X
	exit        = unix.BPF_JMP | unix.BPF_EXIT

	result, context, kind, access, major, minor = 0, 1, 2, 3, 4, 5
)

const allAccess = unix.BPF_DEVCG_ACC_MKNOD | unix.BPF_DEVCG_ACC_READ | unix.BPF_DEVCG_ACC_WRITE

// compile returns the program of rules, as crun makes it: the last rule that matches the device and includes all of the
// wanted access decides. Without one the access is denied.
func compile(text string) ([]instruction, error) {
	var rules []rule
	if err := json.Unmarshal([]byte(text), &rules); err != nil {
		return nil, err
	}
	code := []instruction{ // read struct bpf_cgroup_dev_ctx
		{loadWord, kind | context<<4, 0, 0}, {and, kind, 0, 0xffff}, {loadWord, access | context<<4, 0, 0}, {shift, access, 0, 16},
		{loadWord, major | context<<4, 4, 0}, {loadWord, minor | context<<4, 8, 0},
	}
	rules = append(rules, usual()...)
	for i := len(rules) - 1; i >= 0; i-- {
		checks, err := rules[i].checks()
		if err != nil {
			return nil, err
		}
		verdict := int32(0)
		if rules[i].Allow {
			verdict = 1
		}
		for n := range checks {
			if checks[n].code == unless || checks[n].code == unlessEqual {
				checks[n].offset = int16(len(checks) - n + 1) // to the next rule
			}
		}
		code = append(append(code, checks...), instruction{set, result, 0, verdict}, instruction{exit, 0, 0, 0})
		if len(checks) == 0 { // it decides everything, and the kernel refuses code that never runs
			return code, nil
		}
	}
	return append(code, instruction{set, result, 0, 0}, instruction{exit, 0, 0, 0}), nil
}

// checks returns the conditions of a rule. Each jump leads to the next rule.
func (r rule) checks() (code []instruction, err error) {
	switch {
	case r.Type == "" || r.Type[0] == 'a':
	case r.Type[0] == 'b':
		code = append(code, instruction{unless, kind, 0, unix.BPF_DEVCG_DEV_BLOCK})
	default:
		code = append(code, instruction{unless, kind, 0, unix.BPF_DEVCG_DEV_CHAR})
	}
	mask := int32(0)
	for letter, bit := range map[string]int32{
		"r": unix.BPF_DEVCG_ACC_READ, "w": unix.BPF_DEVCG_ACC_WRITE, "m": unix.BPF_DEVCG_ACC_MKNOD,
	} {
		if strings.Contains(r.Access, letter) {
			mask |= bit
		}
	}
	if mask != allAccess {
		code = append(code, instruction{copyWord, context | access<<4, 0, 0}, instruction{and, context, 0, mask},
			instruction{unlessEqual, context | access<<4, 0, 0})
	}
	for register, number := range []*int64{major: r.Major, minor: r.Minor} {
		if number == nil || *number < 0 {
			continue
		}
		if *number > math.MaxInt32 {
			return nil, errdefs.ErrInvalidArgument
		}
		code = append(code, instruction{unless, uint8(register), 0, int32(*number)})
	}
	return code, nil
}
