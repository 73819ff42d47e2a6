package unpack_test

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/guest/internal/unpack"
)

// content starts like an ELF file and is long enough for several blocks.
var content = append([]byte("\x7fELF"), bytes.Repeat([]byte("the quick brown fox"), 40000)...)

// Each format is compressed by the tool that distributions use.
func TestELF(t *testing.T) {
	for name, tool := range map[string][]string{
		"none":           {"cat"},
		"gzip":           {"gzip", "-n"},
		"xz of a module": {"xz", "--check=crc32"},
		"xz of a kernel": {"xz", "--check=crc32", "--x86", "--lzma2=dict=32MiB"},
		"zstd":           {"zstd", "-q"},
		"zstd, long":     {"zstd", "-q", "--ultra", "-22", "--long=27"},
		"bzip2":          {"bzip2"},
	} {
		t.Run(name, func(t *testing.T) {
			packed := pipe(t, content, tool...)
			got, err := unpack.ELF(packed, int64(len(content)))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, content) {
				t.Error("another content came out")
			}
			if _, err := unpack.ELF(packed, int64(len(content))-1); name != "none" && !fails(err, "too large") {
				t.Errorf("with a limit one byte too low: %v", err)
			}
			if _, err := unpack.ELF(packed[:len(packed)/2], 1<<30); name != "none" && err == nil {
				t.Error("half of it was taken for the whole")
			}
		})
	}
}

func TestELFRefuses(t *testing.T) {
	for name, data := range map[string][]byte{"nothing": nil, "text": []byte("#!/bin/sh"), "one byte": {0x1f}} {
		if _, err := unpack.ELF(data, 1<<20); !fails(err, "unknown compression") {
			t.Errorf("%s: got %v, want an unknown compression", name, err)
		}
	}
	if _, err := unpack.ELF(pipe(t, []byte("not an ELF file"), "gzip"), 1<<20); err == nil {
		t.Error("packed text was taken for an ELF file")
	}
}

func fails(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

func pipe(t *testing.T, data []byte, tool ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool[0], tool[1:]...)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(data), io.Discard
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", tool, err)
	}
	return out
}
