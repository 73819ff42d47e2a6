package fields

import (
	"bytes"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// TestEveryFieldIsInTheTable fails for a field that a newer version of the specification adds.
func TestEveryFieldIsInTheTable(t *testing.T) {
	known := map[string]bool{}
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		for i := range of.NumField() {
			key := of.Name() + "." + nameOf(of.Field(i))
			if known[key] {
				continue
			}
			known[key] = true
			e, ok := table[key]
			if !ok {
				t.Errorf("%s is not in the table", key)
			}
			if (e.Treatment == Ignored || e.Treatment == Refused) && e.Note == "" {
				t.Errorf("%s is %s without a reason", key, e.Treatment)
			}
			if inner := element(of.Field(i).Type); IsSpec(inner) && (e.Treatment == Guest || e.Treatment == Host) {
				walk(inner)
			}
		}
	}
	walk(reflect.TypeFor[specs.Spec]())
	for key := range table {
		if !known[key] {
			t.Errorf("the table has %s, which the specification lacks, or which lies in an ignored or refused field", key)
		}
	}
	if len(known) < 150 {
		t.Errorf("only %d fields were found", len(known))
	}
}

func TestAnUnknownFieldIsRefused(t *testing.T) {
	if e := EntryOf(reflect.TypeFor[specs.Spec](), "new"); e.Treatment != Refused || e.Note == "" {
		t.Errorf("%+v", e)
	}
}

func TestDocument(t *testing.T) {
	got, err := os.ReadFile("../../docs/oci-config.md")
	if err != nil || !bytes.Equal(got, Markdown()) {
		t.Errorf("docs/oci-config.md is not up to date: go generate ./oci/fields (%v)", err)
	}
}

func TestUnknown(t *testing.T) {
	for _, tc := range []struct {
		config string
		want   []string
	}{
		{`{"ociVersion":"1.0.2","process":{"args":["a"]},"PROCESS":{"env":[]}}`, nil},
		{`{"x":1,"b":{"y":2},"process":{"new":true,"user":{"uid":0,"shell":"/bin/sh"}}}`,
			[]string{"b", "process.new", "process.user.shell", "x"}},
		{`{"mounts":[{"destination":"/a"},{"destination":"/b","mode":1}]}`, []string{"mounts[1].mode"}},
		{`{"process":["a"],"mounts":{},"linux":7,"annotations":{"x":"y"}}`, nil},
		{`{"linux":{"resources":{"blockIO":{"weightDevice":[{"major":8,"minor":0,"weight":5,"burst":1}]},"rdma":{"x":{"hcaHandles":1}}}}}`,
			[]string{"linux.resources.blockIO.weightDevice[0].burst"}},
		{`{`, nil}, {``, nil}, {`[]`, nil}, {`{"process":null,"hooks":{"prestart":[null,{"when":1}]}}`, []string{"hooks.prestart[1].when"}},
	} {
		if got := Unknown([]byte(tc.config)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q", tc.config, got)
		}
	}
	many := `{"` + strings.Repeat("a", 1000) + `":1`
	for _, c := range "bcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		many += `,"x` + string(c) + `":1`
	}
	if got := Unknown([]byte(many + "}")); len(got) != 32 || len(got[0]) > 200 {
		t.Errorf("%d names", len(got))
	}
}
