//! A kind of enum that the segment is full of: entries in a fixed order, each with a name for programs and one for people.

/// Makes such an enum. Entries are only ever added behind the last: their places are the segment's layout.
macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $key:literal, $label:literal;)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant),* }

        impl $name {
            /// All of them, in the order of the segment.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Its place in the segment.
            #[must_use]
            pub const fn index(self) -> usize { self as usize }

            /// The name that programs read.
            #[must_use]
            pub const fn key(self) -> &'static str { match self { $(Self::$variant => $key),* } }

            /// The name that people read.
            #[must_use]
            pub const fn label(self) -> &'static str { match self { $(Self::$variant => $label),* } }
        }
    };
}

pub(crate) use numbered;
