package main

import (
	"testing"
)

func TestSelected(t *testing.T) {
	all, err := selected("")
	if err != nil || len(all) < 5 {
		t.Fatalf("%d groups: %v", len(all), err)
	}
	some, err := selected("exec, clone")
	if err != nil || len(some) != 2 || some[0].Name != "clone" || some[1].Name != "exec" {
		t.Errorf("%v: %v", some, err)
	}
	if _, err := selected("exec,nothing"); err == nil {
		t.Error("an unknown group is taken")
	}
}
