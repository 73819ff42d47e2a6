package text

import "testing"

func TestQuantity(t *testing.T) {
	for typed, want := range map[string]string{
		"512m": "512Mi", "1G": "1Gi", "64k": "64Ki", "1048576": "1048576", "5mb": "5Mi", "10b": "10", "2T": "2Ti", "256Mi": "256Mi",
	} {
		if got, err := Quantity(typed); got != want || err != nil {
			t.Errorf("%s: %s, %v", typed, got, err)
		}
	}
	for _, typed := range []string{"", "-1", "1.5", "x", "5p", "m"} {
		if got, err := Quantity(typed); err == nil {
			t.Errorf("%q: %s", typed, got)
		}
	}
}

func TestMemory(t *testing.T) {
	for typed, want := range map[string]string{
		"6m": "6Mi", "6291456": "6291456", "512m": "512Mi", "1Gi": "1Gi", "0.5Gi": "0.5Gi", "99999999999t": "99999999999Ti",
	} {
		if got, err := Memory(typed); got != want || err != nil {
			t.Errorf("%s: %s, %v", typed, got, err)
		}
	}
	for _, typed := range []string{"", "0", "512", "6291455", "5m", "6143k", "1024Ki"} {
		if got, err := Memory(typed); err == nil {
			t.Errorf("%q: %s", typed, got)
		}
	}
}
