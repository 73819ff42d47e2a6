package podapi

import (
	"os"
	"path/filepath"
	"testing"
)

func TestExamplesAreAccepted(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(filepath.Base(file), data); err != nil {
			t.Error(err)
		}
	}
}
