package nearest

import "testing"

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{a: "", b: "", want: 0}, {a: "", b: "abc", want: 3}, {a: "image", b: "image", want: 0}, {a: "iamge", b: "image", want: 1},
		{a: "imge", b: "image",
			want: 1}, {a: "imagee", b: "image",
			want: 1}, {a: "omage", b: "image",
			want: 1}, {a: "kitten", b: "sitting",
			want: 3},
	} {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("%q and %q: %d, want %d", test.a, test.b, got, test.want)
		}
		if got := distance(test.b, test.a); got != test.want {
			t.Errorf("%q and %q: %d, want %d", test.b, test.a, got, test.want)
		}
	}
}
