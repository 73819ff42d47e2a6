package devices

import (
	"strings"
	"testing"
)

// request is a process's wish: a type, a device and the letters of its access.
type request struct {
	kind         string
	major, minor int32
	access       string
}

// run runs a program as the kernel does.
func run(t *testing.T, code []instruction, r request) bool {
	t.Helper()
	words := map[string]int32{"b": 1, "c": 2, "m": 1, "r": 2, "w": 4}
	all := int32(0)
	for _, letter := range strings.Split(r.access, "") {
		all |= words[letter]
	}
	memory := map[int16]int32{0: words[r.kind] | all<<16, 4: r.major, 8: r.minor}
	var registers [6]int32
	for at := 0; at < len(code); at++ {
		i := code[at]
		to, from := i.registers&15, i.registers>>4
		switch i.code {
		case loadWord:
			if from != context {
				t.Fatalf("instruction %d reads from register %d", at, from)
			}
			registers[to] = memory[i.offset]
		case and:
			registers[to] &= i.value
		case shift:
			registers[to] >>= i.value
		case copyWord:
			registers[to] = registers[from]
		case set:
			registers[to] = i.value
		case unless, unlessEqual:
			other := i.value
			if i.code == unlessEqual {
				other = registers[from]
			}
			if registers[to] != other {
				at += int(i.offset)
			}
		case exit:
			return registers[result] == 1
		default:
			t.Fatalf("instruction %d: %+v", at, i)
		}
	}
	t.Fatal("the program has no end")
	return false
}

func TestCompile(t *testing.T) {
	t.Parallel()
	null, zero := request{"c", 1, 3, "rw"}, request{"c", 1, 5, "r"}
	disk, memory := request{"b", 8, 0, "r"}, request{"c", 1, 1, "r"}
	anyNode := request{"b", 9, 9, "m"}
	for rules, want := range map[string]map[request]bool{
		`[]`: {
			null: true, zero: true, disk: false, memory: false, anyNode: true, {"c", 136, 7, "rw"}: true, {"c", 5, 2, "rwm"}: true,
			{"b", 1, 3, "r"}: false,
		},
		`[{"allow":false,"access":"rwm"}]`:                                          {null: true, disk: false, memory: false, anyNode: true},
		`[{"allow":true,"access":"rwm"}]`:                                           {null: true, disk: true, memory: true},
		`[{"allow":true,"access":"rwm"},{"allow":false,"type":"a","access":"rwm"}]`: {null: true, disk: false, anyNode: true},
		`[{"allow":false,"access":"rwm"},{"allow":true,"type":"c","major":1,"minor":1,"access":"r"}]`: {
			memory: true, {"c", 1, 1, "w"}: false, {"c", 1, 1, "rw"}: false, {"c", 1, 2, "r"}: false,
		},
		`[{"allow":true,"access":"rwm"},{"allow":false,"type":"c","major":1,"access":"w"}]`: {
			memory: true, {"c", 1, 1, "w"}: false, {"c", 1, 1, "rw"}: true, {"c", 1, 3, "w"}: true,
		},
		`[{"allow":true,"type":"b","major":8,"access":"rw"}]`: {
			disk: true, {"b", 8, 9, "rw"}: true, {"b", 8, 0, "rwm"}: false, {"b", 9, 0, "r"}: false, null: true,
		},
		`[{"allow":true,"type":"c","major":-1,"minor":-1,"access":"r"}]`: {
			memory: true, {"c", 200, 3, "r"}: true, {"c", 200, 3, "w"}: false, disk: false,
		},
		`[{"allow":true,"type":"b","access":""}]`: {disk: false},
	} {
		code, err := compile(rules)
		if err != nil {
			t.Errorf("%s: %v", rules, err)
			continue
		}
		for r, allowed := range want {
			if got := run(t, code, r); got != allowed {
				t.Errorf("%s: %+v is allowed: %t", rules, r, got)
			}
		}
	}
	for _, rules := range []string{"", "{}", `[{"major":"x"}]`, `[{"type":"c","major":4294967296}]`} {
		if _, err := compile(rules); err == nil {
			t.Errorf("%q is compiled", rules)
		}
	}
}
