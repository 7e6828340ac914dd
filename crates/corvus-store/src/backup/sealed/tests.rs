use super::*;

const CHEAP: Cost = Cost { memory_kib: 8, passes: 1, lanes: 1 };
const PASSPHRASE: &str = "correct horse";

fn seal(plain: &[u8], step: usize) -> Vec<u8> {
    let mut writer = SealWriter::new(Vec::new(), PASSPHRASE, CHEAP).unwrap();
    for part in plain.chunks(step.max(1)) {
        writer.write_all(part).unwrap();
    }
    writer.finish().unwrap()
}

fn open(sealed: &[u8]) -> Result<Vec<u8>, BackupError> {
    let mut plain = Vec::new();
    OpenReader::new(sealed, PASSPHRASE)?.read_to_end(&mut plain).map_err(BackupError::Io)?;
    Ok(plain)
}

fn sample(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 % 251) as u8).collect()
}

#[test]
fn what_goes_in_comes_out_at_every_length_around_a_piece() {
    for length in [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 1, 5 * PIECE] {
        let plain = sample(length);
        for step in [1000, PIECE, usize::MAX] {
            assert!(open(&seal(&plain, step)).unwrap() == plain, "{length} in {step}");
        }
    }
}

#[test]
fn a_file_that_is_cut_anywhere_is_not_read_to_an_end() {
    let sealed = seal(&sample(2 * PIECE + 100), 5000);
    let header = sealed.len() - (2 * PIECE + 100) - 3 * TAG;
    let ends = (0..=header)
        .chain([header + 1, header + PIECE, header + PIECE + TAG, header + PIECE + TAG + 1])
        .chain([header + 2 * (PIECE + TAG), sealed.len() - 1]);
    for end in ends {
        assert!(open(&sealed[..end]).is_err(), "cut at {end} of {}", sealed.len());
    }
}

#[test]
fn a_changed_bit_anywhere_is_found() {
    let sealed = seal(&sample(PIECE + 10), 5000);
    let header = sealed.len() - (PIECE + 10) - 2 * TAG;
    // Of the header all but the cost, which changes how long the test takes; of the rest a sample.
    let cost = MAGIC.len() + 1..MAGIC.len() + 13;
    let places =
        (0..header).filter(|p| !cost.contains(p)).chain((header..sealed.len()).step_by(977));
    for place in places {
        let mut bad = sealed.clone();
        bad[place] ^= 0x10;
        assert!(open(&bad).is_err(), "byte {place}");
    }
}

#[test]
fn pieces_cannot_change_places_or_be_left_out() {
    let sealed = seal(&sample(3 * PIECE), 5000);
    let header = sealed.len() - 3 * (PIECE + TAG);
    let (head, body) = sealed.split_at(header);
    let pieces: Vec<_> = body.chunks(PIECE + TAG).collect();
    for order in [[1, 0, 2].as_slice(), &[0, 2], &[0, 1, 1, 2], &[2]] {
        let picked: Vec<_> = order.iter().map(|n| pieces[*n]).collect();
        assert!(open(&[head, &picked.concat()].concat()).is_err(), "{order:?}");
    }
    assert!(open(&sealed).is_ok());
}

#[test]
fn nothing_comes_out_after_a_piece_that_failed() {
    let mut sealed = seal(&sample(3 * PIECE), 5000);
    let second = sealed.len() - 2 * (PIECE + TAG);
    sealed[second] ^= 1;
    let mut reader = OpenReader::new(sealed.as_slice(), PASSPHRASE).unwrap();
    let mut plain = vec![0; PIECE];
    reader.read_exact(&mut plain).unwrap();
    for _ in 0..3 {
        assert!(reader.read(&mut plain).is_err());
    }
}

#[test]
fn a_wrong_passphrase_a_strange_file_and_a_later_form_are_told_apart() {
    let sealed = seal(b"x", 1);
    let wrong = OpenReader::new(sealed.as_slice(), "incorrect horse").err();
    assert!(matches!(wrong, Some(BackupError::WrongPassphrase)), "{wrong:?}");
    let strange = OpenReader::new([b'P'; 100].as_slice(), PASSPHRASE).err();
    assert!(matches!(strange, Some(BackupError::NotABackup)), "{strange:?}");
    let mut later = sealed;
    later[MAGIC.len()] = 2;
    let later = OpenReader::new(later.as_slice(), PASSPHRASE).err();
    assert!(matches!(later, Some(BackupError::UnknownForm(2))), "{later:?}");
}

#[test]
fn a_header_that_asks_for_too_much_is_refused_before_it_costs_anything() {
    for (place, number) in [(9, MAX_MEMORY_KIB + 1), (13, MAX_PASSES + 1), (17, MAX_LANES + 1)] {
        let mut sealed = seal(b"x", 1);
        sealed[place..place + 4].copy_from_slice(&number.to_be_bytes());
        let refused = OpenReader::new(sealed.as_slice(), PASSPHRASE).err();
        assert!(matches!(refused, Some(BackupError::Damaged)), "{refused:?}");
    }
}

#[test]
fn a_short_passphrase_is_refused() {
    let made = SealWriter::new(Vec::new(), "1234567", CHEAP).err();
    assert!(matches!(made, Some(BackupError::ShortPassphrase)), "{made:?}");
    assert!(SealWriter::new(Vec::new(), "éééééééé", CHEAP).is_ok());
}

#[test]
fn files_of_form_1_stay_readable() {
    let sealed = include_bytes!("../../../testdata/backup-v1.bin");
    assert_eq!(open(sealed).unwrap(), b"the form of version 1");
}
