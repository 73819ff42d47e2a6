package launcher

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plain is a process for the launcher.
const plain = `{"args":["/bin/true"],"cwd":"/","env":["HOME=/"],"user":{"uid":1,"gid":2}}`

// TestEncode compares a whole message with the layout in launcher.h.
func TestEncode(t *testing.T) {
	t.Parallel()
	c := NewContainer([]byte(`{}`), []byte("12345678abcdefgh"))
	got, err := c.encode(json.RawMessage(`{"args":["a","","c"],"cwd":"/x","env":["PATH=/bin","HOME=/","A=1","PATH=/y","A="],
		"user":{"uid":10,"gid":11,"umask":63,"additionalGids":[5,4294967295]},"noNewPrivileges":true,
		"rlimits":[{"type":"RLIMIT_NOFILE","soft":1,"hard":18446744073709551615}],
		"capabilities":{"bounding":["CAP_CHOWN"],"permitted":["CAP_DAC_OVERRIDE"],"effective":["CAP_KILL"],
			"inheritable":["CAP_CHECKPOINT_RESTORE"],"ambient":["CAP_CHOWN","CAP_KILL"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	const text = "/x\x00a\x00\x00c\x00PATH=/y\x00HOME=/\x00A=\x00"
	var want []byte
	for _, v := range []uint32{
		2, uint32(headerSize + 24 + 16 + 8 + len(text)), 10, 11, 63, 1, namespaces, 4,
		1, 0, 2, 0, 1 << 5, 0, 0, 1 << 8, 1<<5 | 1, 0,
		1, 2, 2, 3, 3, uint32(len(text)), 0, 0, 0, 0,
		7, 0, 1, 0, 0xffffffff, 0xffffffff,
	} {
		want = binary.LittleEndian.AppendUint32(want, v)
	}
	want = append(want, "12345678abcdefgh\x05\x00\x00\x00\xff\xff\xff\xff"+text...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDefaults: the container's capabilities and the usual umask apply to a process that names none.
func TestDefaults(t *testing.T) {
	t.Parallel()
	c := NewContainer([]byte(`{"process":{"capabilities":{"bounding":["CAP_KILL"]}}}`), nil)
	got, err := c.encode(json.RawMessage(plain))
	if err != nil {
		t.Fatal(err)
	}
	if umask, bounding := got[16], got[32]; umask != 0o22 || bounding != 1<<5 {
		t.Errorf("umask %o, bounding set %x", umask, bounding)
	}
}

// TestDeclined: everything unusual is left to crun.
func TestDeclined(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`"A=1",`, maxStrings)
	for name, process := range map[string]string{
		"not JSON": "x", "terminal": `"terminal":true`, "size": `"consoleSize":{"width":1,"height":1}`,
		"label": `"selinuxLabel":"x"`, "profile": `"apparmorProfile":"x"`, "no user": `"user":null`, "no command": `"args":[]`,
		"empty command": `"args":[""]`, "relative directory": `"cwd":"x"`, "no directory": `"cwd":""`, "no HOME": `"env":["A=1"]`,
		"no PATH": `"args":["x"]`, "bad variable": `"env":["HOME=/","A"]`, "nameless variable": `"env":["HOME=/","=A"]`,
		"NUL": `"args":["/a\u0000b"]`, "NUL in a directory": `"cwd":"/\u0000"`, "capability": `"capabilities":{"ambient":["CAP_MOON"]}`,
		"limit": `"rlimits":[{"type":"RLIMIT_MOON"}]`, "limits": `"rlimits":[` + strings.Repeat(`{},`, maxLimits) + `{}]`,
		"negative": `"user":{"uid":-1}`, "many": `"args":[` + strings.ReplaceAll(many, "A=1", "/a") + `"/a"]`,
		"large": `"args":["/a","` + strings.Repeat("x", maxMessage) + `"]`,
	} {
		process = strings.TrimSuffix(plain, "}") + "," + process + "}"
		if _, err := NewContainer([]byte(`{}`), nil).encode(json.RawMessage(process)); !errors.Is(err, ErrDeclined) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, config := range map[string]string{
		"not JSON": "x", "annotation": `{"annotations":{"run.oci.handler":"krun"}}`,
		"user namespace": `{"linux":{"namespaces":[{"type":"user"}]}}`, "time": `{"linux":{"namespaces":[{"type":"time"}]}}`,
		"personality": `{"linux":{"personality":{"domain":"LINUX32"}}}`, "label": `{"process":{"selinuxLabel":"x"}}`,
		"flags": `{"linux":{"seccomp":{"flags":[]}}}`, "notifier": `{"linux":{"seccomp":{"listenerPath":"/x"}}}`,
	} {
		if _, err := NewContainer([]byte(config), nil).encode(json.RawMessage(plain)); !errors.Is(err, ErrDeclined) {
			t.Errorf("container with %s: %v", name, err)
		}
	}
	for _, size := range []int{7, 8 * (maxFilter + 1)} {
		if _, err := NewContainer([]byte(`{}`), make([]byte, size)).encode(json.RawMessage(plain)); !errors.Is(err, ErrDeclined) {
			t.Errorf("filter of %d bytes: %v", size, err)
		}
	}
}

func TestMessage(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]*StepError{
		"executable file `x` not found in $PATH: No such file or directory": {find, 2},
		"open executable: Permission denied":                                {open, 13},
		"chdir `/y`: Not a directory":                                       {directory, 20},
	} {
		if got := f.Message("x", "/y"); got != want || fmt.Sprint(f) == "" {
			t.Errorf("%v: %q, want %q", f, got, want)
		}
	}
}
